variable "name" { default = "PYTHONPATH" }
job "host-env" {
  command = ["x"]
  hosts "local" {}
  ranks { per_host = 2 }
  env = {
    LD_LIBRARY_PATH = append("/opt/lib", env_of_host("LD_LIBRARY_PATH"))
    PYTHONPATH      = append(env_of_host(var.name), "/src")
    FLAGS           = append(append("", "-a", " "), "-b", " ")
    NOTHING         = append(null, "")
    UUID            = gpu.uuid
    PCI             = gpu.pci == null ? "none" : lower(gpu.pci)
    INDEX           = "${coalesce(gpu.index, -1)}"
  }
}
