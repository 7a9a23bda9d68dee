job "nccl" {
  command = ["x"]
  hosts "local" {}
  nccl {
    p2p_disable          = true
    p2p_level            = "NVL" # want: Conflicting arguments
    max_ctas             = 16    # want: Conflicting arguments
    min_ctas             = 17
    ib_disable           = true
    ib_hca               = "=mlx5_0" # warn: No effect
    blocking_wait        = true
    async_error_handling = 1     # warn: No effect
    desync_debug         = false
    trace_buffer_events  = 0
    dump_on_timeout      = true  # warn: No effect
  }
}
