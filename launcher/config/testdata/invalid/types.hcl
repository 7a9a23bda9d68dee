job "-bad name" {             # want: Invalid job name
  command = "python train.py" # want: Wrong type
  workdir = 3                 # want: Wrong type
  setup   = ["a"]             # want: Wrong type
  lease   = 30                # want: Wrong type
  ports   = "20000"           # want: Invalid port range
  env     = ["A=1"]           # want: Wrong type
  hosts "ssh" {
    names = "gpu[01-04]"      # want: Wrong type
    host "gpu01" {
      user = "a b"            # want: Invalid user
      port = "http"           # want: Invalid number
      ranks { per_host = 0 }  # want: Invalid number of ranks
    }
  }
  ranks {
    per_host = 1.5            # want: Invalid number of ranks
    backend  = "mpi"          # want: Invalid value
  }
  stop {
    grace  = "30"             # want: Invalid time
    signal = "KILL"           # want: Invalid value
  }
  logs { show = true }        # want: Wrong type
}
