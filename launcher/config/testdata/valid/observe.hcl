# What ranks are made to tell of themselves.
variable "debug" { default = true }

job "observe" {
  command = ["python", "train.py"]
  hosts "local" {}
  observe {
    torch    = true
    snapshot = var.debug
  }
}
