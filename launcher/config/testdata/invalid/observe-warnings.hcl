job "observe" {
  command = ["python", "train.py"]
  hosts "local" {}
  observe {
    torch    = false
    snapshot = true                     # warn: Without effect
  }
}
