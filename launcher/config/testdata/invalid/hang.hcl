job "hang" {
  command = ["python", "train.py"]
  hosts "local" {}
  hang {
    silence = "1s"       # want: Time out of range
    action  = "restart"  # want: No restart block
    stacks  = "some"     # want: Wrong type
    signal  = "SIGKILL"  # want: Invalid value
    timeout = "10m"      # want: Unsupported argument
  }
}
