# var: steps=2e4
# var: tags=["x", "y"]
# var: model=llama $HOME
variable "config" { default = "configs/70b-lora.yaml" }
variable "steps" {
  description = "how many"
  default     = 1000
}
variable "tags" { default = [] }
variable "model" {}
variable "fast" { default = false }

job "llama-lora_2.1" {
  command = concat(
    ["python", "train.py", "--config", var.config, "--steps", var.steps, "--model=${var.model}"],
    [for t in var.tags : "--tag=${t}"],
    var.fast ? ["--fast"] : [],
  )
  workdir = "~/llama"
  lease   = "1m30s"
  ports   = "20000-29999"
  setup   = <<-EOT
    source ~/venv/bin/activate
    export NOW=$(date) PID=$$ X=$${X:-y}
    curl -w '%%{http_code}' | awk '{print $1}'
  EOT

  hosts "ssh" {
    names = ["gpu[01-03]", "alice@10.0.0.7:2222", "[2001:db8::1]:22", "box:2201, root@box:2202"]

    host "gpu02" {
      port    = 2022
      workdir = "/scratch"
      setup   = ""
      env     = { HF_HOME = null, EXTRA = "of ${host.name}", SHARD = 7 }
      ranks { per_host = 2 }
    }
    host "GPU03" {
      ranks { per_host = "gpu" }
    }
    host "10.0.0.7:2222" { workdir = "/w" }
    host "root@box:2202" {
      workdir = null
      port    = null
    }
  }
  ranks {
    per_host = 4
    backend  = "gloo"
  }
  env = {
    HF_HOME = "/data/hf"
    SHARD   = rank.global % 4
    WHERE   = "${host.name}/${host.index} ${rank.local} of ${rank.world_size}"
    GONE    = null
  }
  stop {
    grace  = "1h30m"
    signal = "SIGUSR1"
  }
  logs { show = "0,3-5" }
}
