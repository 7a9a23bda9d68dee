# var: idle=2
# var: equal=true
# var: free=70 GiB
variable "idle" {}
variable "equal" {}
variable "free" {}
variable "tensor" { default = 2 }

job "placement" {
  command = ["x"]
  python  = "~/venv/bin/python"

  hosts "ssh" {
    names = ["a[1-9]", "b"]
    host "a1" {
      ranks {
        per_host = "gpu"
        devices  = "all"
      }
    }
    host "a2" {
      ranks {
        per_host = 1
        devices  = [3]
      }
    }
    host "a3" {
      ranks { devices = [0, "1"] }
    }
    host "a4" {
      ranks { devices = ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8932f9"] }
    }
    host "a5" {
      ranks { devices = ["00000000:0F:00.0", " 1f:00.0 "] }
    }
    host "a6" {
      ranks { devices = ["MIG-3771aff4-d72c-4106-c12f-20bd9faed9f6", "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"] }
    }
    host "a7" {
      ranks { devices = [for i in range(2) : i * 2] }
    }
    host "a8" {
      ranks {
        per_host = null
        devices  = var.idle
      }
    }
    host "a9" {
      ranks { devices = "none" }
    }
    host "b" {
      ranks {
        per_host = 3
        devices  = []
      }
    }
  }
  ranks {
    per_host      = 2
    devices       = 2
    backend       = "gloo"
    shared        = false
    min_free      = var.free
    visibility    = "rank"
    device_names  = "index"
    groups        = { tensor = var.tensor, "pipeline" = 4, node = 8, data = 4 }
    equal         = var.equal
    bind          = "none"
  }
  plugin "rocm_1" {
    path   = "~/bin/prober"
    sha256 = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"
    args   = ["--device", 0, "${1 + 1}"]
  }
}
