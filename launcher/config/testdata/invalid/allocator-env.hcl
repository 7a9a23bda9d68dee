variable "secret" {
  default   = ""
  sensitive = true
}
job "env" {
  command = ["x"]
  hosts "ssh" {
    names = ["a", "b"]
    host "b" {
      env = {
        PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True" # warn: Set twice
      }
    }
  }
  allocator { expandable_segments = false }
  env = {
    PYTORCH_ALLOC_CONF      = "max_split_size_mb:12,expandable_segments=True" # warn: Dangerous value
    PYTORCH_CUDA_ALLOC_CONF = "foo:1,max_split_size_mb:12" # warn: Dangerous value | Dangerous value
    PYTORCH_HIP_ALLOC_CONF  = "${var.secret}foo:1"
    # warn-3: Set twice | Set twice
  }
}
