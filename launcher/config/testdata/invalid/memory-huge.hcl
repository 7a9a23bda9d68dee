job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory { parameters = 1e30 }          # want: Invalid number of parameters
}
