job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory {
    parameters = "70B"
    dtype      = "nf4"                  # want: Invalid value
  }
}
