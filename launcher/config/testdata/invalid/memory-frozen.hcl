job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory {
    parameters = 70                     # want: Invalid number of parameters
    dtype      = "int8"
  }
}
