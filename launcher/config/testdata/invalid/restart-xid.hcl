job "restart" {
  command = ["python", "train.py"]
  hosts "local" {}
  restart {
    xid = { 63 = "drain", sixty = "stop", 0 = "stop" } # want: Invalid value | Invalid number | Invalid number
  }
  progress {
    pattern = "step [0-9]+"             # want: Invalid pattern
    folder  = "~bob/checkpoints"        # want: Invalid path
    every   = "1m"                      # want: Unsupported argument
  }
  restart {}                            # want: Repeated block
}
