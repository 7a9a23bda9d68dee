job "restart" {
  command = ["python", "train.py"]
  hosts "local" {}
  restart {
    attempts = 2
    on "stopped" { attempts = 1 }       # warn: Without effect
    on "host.lost" {}                   # warn: Without effect
    on "gpu.lost" { attempts = 0 }
    on "nccl" { attempts = 3 }          # warn: Without effect
    on "oom.capacity" {                 # warn: Without effect
      attempts = 0
      env      = { A = 1 }
    }
    on "oom" {
      attempts    = 0
      wait_memory = "1m"                # warn: Without effect
    }
  }
}
