job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory {
    parameters = null                   # want: Missing required argument
    trainable  = 1.5                    # want: Invalid share
  }
}
