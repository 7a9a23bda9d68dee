job "restart" {
  command = ["python", "train.py"]
  hosts "local" {}
  ranks { backend = "gloo" }
  restart {
    attempts      = "three"             # want: Invalid number
    within        = 3600                # want: Wrong type
    backoff       = "soon"              # want: Invalid time
    healthy_after = "0s"                # want: Time out of range
    atempts       = 3                   # want: Unsupported argument
    on {}                               # want: Missing label
    on "oom.capasity" {}                # want: Unknown class
    on "fragmentation" {}               # want: Unknown class
    on "gpu.xid.x" {}                   # want: Unknown class
    on "typo" {}                        # want: Unknown class
    on "exit" {
      attempts    = -1                  # want: Invalid number
      wait_memory = 5                   # want: Wrong type
      args        = "--accumulate 2"    # want: Wrong type
      env = {
        RANK = 3                        # want: Variable belongs to muster
        A    = [1]                      # want: Wrong type
        B    = rank.globl               # want: Unknown name
      }
      restart = true                    # want: Unsupported argument
      stop {}                           # want: Unsupported block type
    }
    on "crash" {
      allocator { max_split_size = 64 } # want: Wrong type
      nccl {                            # warn: No effect
        p2p_level = "PXI"               # want: Invalid value
      }
    }
  }
}
