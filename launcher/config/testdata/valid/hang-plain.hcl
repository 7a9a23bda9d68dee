job "hang-plain" {
  command = ["python", "train.py"]
  hosts "local" {}
  ranks {
    per_host = 2
    devices  = "none"
  }
  restart {
    attempts = 2
    on "hang" { args = ["--safe"] }
  }
  hang {
    silence = "90s"
    action  = "restart"
    stacks  = false
  }
}
