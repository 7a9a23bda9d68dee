# var: lenient=true
variable "lenient" { default = false }

job "check" {
  command = ["python", "train.py"]
  hosts "local" {}
  check {
    ignore    = concat(["persistence_off"], var.lenient ? ["pcie_narrow"] : [])
    severity  = { driver_differs = "fail", slow_group = "info" }
    wrong_gpu = "stop"
  }
}
