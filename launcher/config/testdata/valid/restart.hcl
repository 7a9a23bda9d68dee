variable "batches" { default = 4 }

job "restart" {
  command = ["python", "train.py"]
  hosts "ssh" {
    names = ["a", "b"]
  }
  ranks { per_host = 2 }
  env = { MICRO_BATCH_SIZE = "8", GONE = "1", SHARD = rank.global }
  restart {
    attempts      = 5
    within        = "1h"
    backoff       = "20s"
    healthy_after = "15m"

    on "oom.fragmentation" {
      allocator { max_split_size = "64MiB" }
    }
    on "oom.capacity" {
      attempts = 1
      env      = { MICRO_BATCH_SIZE = var.batches, GONE = null }
      args     = ["--accumulate", 2]
    }
    on "oom.capacity" {
      env = { MICRO_BATCH_SIZE = 2, SHARD = rank.local }
    }
    on "oom" {}
    on "oom.foreign_process" { wait_memory = "5m" }
    on "nccl" {
      attempts = 2
      nccl { p2p_level = "PIX" }
    }
    on "gpu.xid.31" { attempts = 0 }
    on "user_error" { attempts = 0 }
  }
  progress {
    pattern = "done ([0-9]+) of"
    folder  = "~/checkpoints"
  }
}
