job "a" {
  command = ["true"]
  hosts "local" {}
  ranks {
    per_host = 3 # want: Ranks and devices do not match
  }
  mps {
    ranks_per_gpu            = 2
    active_thread_percentage = 0.5 # warn: Small percentage
    pinned_memory_limit      = "66561KiB" # want: Invalid size
    daemon                   = "exsiting" # want: Invalid value
  }
}
