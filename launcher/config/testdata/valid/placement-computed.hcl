variable "groups" { default = { tensor = 2, node = 4 } }

job "computed" {
  command = ["x"]
  hosts "local" {}
  plugin "p" {
    path   = "/opt/p"
    sha256 = lower("E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855")
    args   = null
  }
  ranks {
    per_host = 4
    devices  = concat([0], ["GPU-ab"])
    shared   = true
    groups   = merge(var.groups, { all = 8 })
    min_free = "1.5GiB"
  }
}
