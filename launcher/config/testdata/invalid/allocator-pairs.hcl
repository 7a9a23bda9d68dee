job "pairs" {
  command = ["x"]
  hosts "local" {}
  allocator {
    backend                      = "cudaMallocAsync"
    max_split_size               = "128MiB"  # want: Impossible pair | Size out of range
    memory_fraction              = 0.5       # want: Impossible pair
    expandable_segments          = true      # want: Impossible pair
    garbage_collection_threshold = 0.8       # want: Impossible pair
    large_segment_size           = "256MiB"  # want: Impossible pair
    roundup_power2_divisions     = { ">" = 1 } # want: Impossible pair | Invalid value
  }
}
