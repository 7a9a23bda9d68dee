job "nccl" {
  command = ["x"]
  hosts "local" {}
  ranks { backend = "gloo" }
  nccl {                           # warn: No effect
    buffer_size = "3MiB"           # warn: Odd buffer size
    ib_hca      = "mlx5_0,mlx5_1"  # warn: Dangerous value
    proto       = ["LL", "LL128"]  # warn: Dangerous value
    debug_file  = "/tmp/nccl.log"  # warn: Dangerous value
    max_channels = 16              # want: Unsupported argument
  }
}
