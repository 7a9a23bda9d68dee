job "restart-plain" {
  command = ["python", "train.py"]
  hosts "local" {}
  restart {}
  progress {}
}
