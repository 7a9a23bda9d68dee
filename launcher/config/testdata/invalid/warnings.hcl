variable "unused" { default = 1 }         # warn: Unused variable
job "warnings" {
  command = ["x"]
  hosts "ssh" {
    names = ["alice@a:22", "b"]
    host "a" {
      user = "bob"                        # warn: Two users for one host
      port = 2222                         # warn: Two ports for one host
    }
  }
  workdir = "$SCRATCH/x"                  # warn: Variable in a path
  ranks { per_host = 2 }
  logs { show = [0, 4] }                  # warn: No such rank
}
