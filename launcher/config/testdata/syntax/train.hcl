variable "steps" { default = 1000 }
variable "tags" { default = ["x", "y"] }
variable "token" {
  default   = ""
  sensitive = true
}

job "train" {
  command = ["python", "train.py", "--steps=${var.steps}", "--lr", 1e-4, "$${HOME}"]
  workdir = "~/train"
  lease   = "1m"
  setup   = "source venv/bin/activate\n"
  env = {
    SHARD = "${rank.global % 4}"
    WHERE = "${host.name}/${rank.local} of ${rank.world_size}"
    LIBS  = append("/opt/lib", env_of_host("LD_LIBRARY_PATH"))
    TOKEN = var.token
    TAGS  = "${join(",", [for t in var.tags : upper(t)])}"
    NONE  = null
    ON    = true
  }
  forward = ["WANDB_*"]

  hosts "ssh" {
    names = ["gpu[01-02]", "alice@10.0.0.7:2222"]
    host "gpu02" {
      port = 2022
      env  = { EXTRA = 7 }
      ranks { per_host = 2 }
    }
    host "10.0.0.7:2222" {
      workdir = "/scratch"
    }
  }
  ranks {
    per_host = 4
    backend  = "nccl"
    min_free = "70GiB"
    groups   = { tensor = 2, node = 4 }
  }
  nccl {
    socket_ifname = ["eth0"]
    buffer_size   = "8MiB"
  }
  memory {
    parameters = "7B"
    strategy   = "fsdp"
  }
  restart {
    attempts = 5
    on "oom" {
      env = { SMALL = 1 }
    }
    on "oom" {
      args = ["--tiny", 2]
    }
    on "crash" {
      attempts = 0
    }
  }
  check { severity = { slow_group = "fail" } }
  stop { grace = "1m30s" }
  logs { show = [0, "2-3"] }
}
