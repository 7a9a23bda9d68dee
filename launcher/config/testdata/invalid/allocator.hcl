# Wrong values of an allocator block, all at once.
job "allocator" {
  command = ["x"]
  hosts "local" {}
  allocator {
    max_split_size               = "1500KiB" # want: Size out of range
    max_non_split_rounding       = "20.5MiB" # want: Invalid size
    expandable_segments          = "True"    # want: Wrong type
    garbage_collection_threshold = 1         # want: Invalid fraction
    memory_fraction              = "50%"     # want: Invalid fraction
    roundup_power2_divisions     = 3         # want: Invalid number
    backend                      = "cudamallocasync" # want: Invalid value
    large_segment_size           = "10MiB"   # want: Size out of range
    max_split_size_mb            = 128       # want: Unsupported argument
    per_process_memory_fraction  = 0.5       # want: Unsupported argument
    expandable_segment           = true      # want: Unsupported argument
    roundup_bypass_threshold_mb  = 1         # want: Unsupported argument
  }
  allocator {                                # want: Repeated block
  }
}
