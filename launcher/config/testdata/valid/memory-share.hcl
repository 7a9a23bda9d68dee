job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory {
    fused                   = true
    parameters              = 7e9
    trainable               = 0.01 # of all
    gradient_as_bucket_view = true
  }
}
