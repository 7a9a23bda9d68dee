job "warnings" {
  command = ["x"]
  hosts "local" {}
  allocator {
    expandable_segments          = true
    max_split_size               = "128MiB"  # warn: No effect
    garbage_collection_threshold = 0.8       # warn: No effect
    roundup_power2_divisions     = 4
  }
}
