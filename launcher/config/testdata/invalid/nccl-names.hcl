job "nccl" {
  command = ["python", "train.py"]
  hosts "local" {}
  nccl {
    NCCL_BUFFSIZE = "8MiB"  # want: Unsupported argument
    buffsize      = "8MiB"  # want: Unsupported argument
    bufsize       = "8MiB"  # want: Unsupported argument
  }
}
