job "observe" {
  command = ["python", "train.py"]
  hosts "local" {}
  observe {}                            # warn: Without effect
}
