job "restart" {
  command = ["python", "train.py"]
  hosts "local" {}
  restart {
    xid = { 63 = "stop" }               # want: Unsupported argument
  }
  progress {
    pattern = "step [0-9]+"             # want: Invalid pattern
    folder  = "~bob/checkpoints"        # want: Invalid path
    every   = "1m"                      # want: Unsupported argument
  }
  restart {}                            # want: Repeated block
}
