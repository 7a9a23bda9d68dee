job "a" {
  command = ["true"]
  hosts "local" {}
  ranks {
    devices = "none"
  }
  mps { # want: Missing required argument | Ranks and devices do not match
    daemon         = "existing"
    pipe_directory = "run" # want: Invalid path
  }
}
