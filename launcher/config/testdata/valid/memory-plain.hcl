job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory { parameters = "350m" }
}
