# What the backend ignores may be switched off beside it, and be null.
job "async" {
  command = ["x"]
  hosts "local" {}
  allocator {
    backend                       = "cudaMallocAsync"
    expandable_segments           = false
    max_split_size                = null
    roundup_power2_divisions      = null
  }
}
