variable "share" { default = 25 }

job "small-ones" {
  command = ["python", "small.py"]
  hosts "ssh" {
    names = ["gpu[1-2]"]
    host "gpu2" {
      ranks {
        devices = [0]
      }
    }
  }
  ranks {
    backend = "none"
    devices = [0, 1]
  }
  mps {
    ranks_per_gpu            = 4
    active_thread_percentage = var.share
    pinned_memory_limit      = ["18GiB", "10GiB", "1536MiB", "0.5GiB"]
  }
}
