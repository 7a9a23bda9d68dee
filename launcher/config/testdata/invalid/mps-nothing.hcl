job "a" {
  command = ["true"]
  hosts "local" {}
  ranks {
    devices = "none"
  }
  mps { # want: Missing required argument | Ranks and devices do not match
    daemon         = "existing"
    exclusive      = true # want: Impossible pair
    pipe_directory = "run" # want: Invalid path
  }
}
