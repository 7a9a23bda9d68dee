job "none" {
  command = ["x"]
  hosts "local" {}
  ranks {
    per_host = "gpu"
    devices  = "none"         # want: Ranks and devices do not match
    backend  = "nccl"         # want: Ranks and devices do not match
  }
}
