job "small-ones" {
  command = ["python", "small.py"]
  hosts "local" {}
  ranks {
    per_host = 4
    devices  = 2
    backend  = "gloo"
  }
  mps {
    ranks_per_gpu            = 2
    active_thread_percentage = [50, "12.5%"]
    daemon                   = "existing"
    pipe_directory           = "/run/mps"
  }
}
