variable "fraction" { default = 0.45 }
variable "size" {}
# var: size=1.5GiB
job "allocator" {
  command = ["python", "train.py", var.size]
  hosts "local" {}
  allocator {
    max_split_size               = "128MiB"
    max_non_split_rounding       = "64MiB"
    expandable_segments          = false
    garbage_collection_threshold = 0.8
    roundup_power2_divisions     = { ">" = 8, "1GiB" = 4, "256MiB" = 1, "512MiB" = "2" }
    backend                      = "native"
    memory_fraction              = var.fraction
    large_segment_size           = "32MiB"

  }
}
