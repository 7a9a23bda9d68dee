job "nccl" {
  command = ["x"]
  hosts "local" {}
  nccl {
    buffer_size          = "8MiB"
    p2p_level            = "NVL"
    p2p_disable          = false
    shm_disable          = false
    socket_ifname        = ["eth0", "eth1"]
    ib_hca               = "=mlx5_0:1,mlx5_1:1"
    ib_disable           = false
    ib_gid_index         = -1
    net_gdr_level        = "PHB"
    debug                = "INFO"
    debug_subsys         = ["INIT", "^ENV"]
    debug_file           = "/tmp/nccl.%h.%p"
    algo                 = "ring,collnetdirect;allreduce:tree"
    proto                = ["^LL128"]
    nvls_enable          = false
    cross_nic            = 2
    topo_file            = "/etc/topo.xml"
    cumem_enable         = true
    min_ctas             = 2
    max_ctas             = "16"
    blocking_wait        = false
    async_error_handling = 3
    heartbeat_monitor    = true
    heartbeat_timeout    = "20m"
    trace_buffer_events  = 2000
    trace_file           = "/tmp/trace_"
    trace_cpp_stack      = true
    dump_on_timeout      = true
    dump_wait            = "1500ms"
    desync_debug         = true
    enable_timing        = true
    nan_check            = true
    high_priority        = null
  }
  env = {
    NCCL_IB_TIMEOUT     = 22
    NCCL_NET_PLUGIN     = "none"
    NCCL_FASTRAK_IFNAME     = "eth1"
  }
}
