job "a" {
  command = ["true"]
  hosts "local" {}
  env = { CUDA_MPS_PIPE_DIRECTORY = "/tmp/x" } # want: Variable belongs to muster
  ranks {
    visibility = "host"
    shared     = true
    per_host   = 7
    devices    = 2 # want: Ranks and devices do not match
  }
  mps { # want: Impossible pair | Impossible pair
    ranks_per_gpu            = 3
    active_thread_percentage = [50, 0, 200, 25] # want: Invalid percentage | Invalid percentage | Wrong number of values
    pinned_memory_limit      = ["4096", 512, "512MB", "1000KiB"] # want: Invalid size | Wrong type | Invalid size | Size out of range | Wrong number of values
    pipe_directory           = "run/mps" # want: Impossible pair
    clients                  = 4 # want: Unsupported argument
  }
}
