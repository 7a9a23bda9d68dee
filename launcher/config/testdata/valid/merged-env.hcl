variable "common" {
  default = { A = "1", B = "2" }
}

job "merged" {
  command = ["x"]
  hosts "local" {}
  ranks { per_host = "gpu" }
  env = merge(var.common, { B = rank.local, C = true }, { for i in range(2) : "N${i}" => i * 10 })
  logs { show = "none" }
}
