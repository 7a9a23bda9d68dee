job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory {
    parameters  = "7B"
    cpu_offload = true                  # warn: No effect
  }
}
