job "nccl" {
  command = ["x"]
  hosts "local" {}
  nccl {
    buffer_size         = 8388608          # want: Wrong type
    p2p_level           = "nvl"            # want: Invalid value
    p2p_disable         = 1                # want: Wrong type
    shm_disable         = "yes"            # want: Wrong type
    socket_ifname       = ["=eth0"]        # want: Invalid value
    ib_hca              = []               # want: Invalid value
    ib_gid_index        = 256              # want: Invalid number
    net_gdr_level       = "NVL"            # want: Invalid value
    debug               = "verbose"        # want: Invalid value
    debug_subsys        = "INIT,net,FOO"   # want: Invalid value | Invalid value
    debug_file          = "~/nccl.log"     # want: Invalid path
    topo_file           = ""               # want: Invalid path
    algo                = ["Rings"]        # want: Invalid value
    proto               = ["LL", 3]        # want: Wrong type
    nvls_enable         = 3                # want: Invalid number
    cross_nic           = "auto"           # want: Invalid number
    max_ctas            = 65               # want: Invalid number
    heartbeat_timeout   = "1500ms"         # want: Invalid time
    dump_wait           = 15               # want: Wrong type
    trace_buffer_events = -1               # want: Invalid number
    trace_buffer_size   = 2000             # want: Unsupported argument
    timeout             = "10m"            # want: Unsupported argument
    cumem_enable        = var.nothing      # want: Unknown variable
    trace_file          = 5                # want: Wrong type
    desync_debug        = null
  }
  nccl {}                                  # want: Repeated block
}
