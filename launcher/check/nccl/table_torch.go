package nccl

// torchVariables are torch's. Its numbers and switches are read otherwise than NCCL's:
// getCvarBool and getCvarInt in torch/csrc/distributed/c10d/Utils.hpp.
//
// The prefix TORCH_ came with torch 2.2. Old names are still read, with a warning; before
// that only these are. Defaults have changed over the releases, so none are told here but
// where they are sure.
var torchVariables = []Variable{
	{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Torch: true, Kind: Number, Low: 0, High: 3, Since: at(2), Former: "NCCL_ASYNC_ERROR_HANDLING"},
	{Name: "TORCH_NCCL_BLOCKING_WAIT", Torch: true, Kind: Switch, Since: at(2), Former: "NCCL_BLOCKING_WAIT"},
	{Name: "TORCH_NCCL_DESYNC_DEBUG", Torch: true, Kind: Switch, Since: at(2), Former: "NCCL_DESYNC_DEBUG"},
	{Name: "TORCH_NCCL_ENABLE_TIMING", Torch: true, Kind: Switch, Since: at(2), Former: "NCCL_ENABLE_TIMING"},
	{Name: "NCCL_ASYNC_ERROR_HANDLING", Torch: true, Kind: Number, Low: 0, High: 3, Instead: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Deprecated: at(2)},
	{Name: "NCCL_BLOCKING_WAIT", Torch: true, Kind: Switch, Instead: "TORCH_NCCL_BLOCKING_WAIT", Deprecated: at(2)},
	{Name: "NCCL_DESYNC_DEBUG", Torch: true, Kind: Switch, Instead: "TORCH_NCCL_DESYNC_DEBUG", Deprecated: at(2)},
	{Name: "NCCL_ENABLE_TIMING", Torch: true, Kind: Switch, Instead: "TORCH_NCCL_ENABLE_TIMING", Deprecated: at(2)},

	{Name: "TORCH_NCCL_ENABLE_MONITORING", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", Torch: true, Kind: Number, Low: 1, High: 1 << 31, Since: at(2)},
	{Name: "TORCH_NCCL_DUMP_ON_TIMEOUT", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_TRACE_BUFFER_SIZE", Torch: true, Kind: Number, Low: 0, High: 1 << 31, Since: at(2)},
	{Name: "TORCH_NCCL_TRACE_CPP_STACK", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", Torch: true, Kind: File, Since: at(2)},
	{Name: "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", Torch: true, Kind: File, Since: at(2)},
	{Name: "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", Torch: true, Kind: Number, Low: 0, High: 1 << 31, Since: at(2)},
	{Name: "TORCH_NCCL_COORD_CHECK_MILSEC", Torch: true, Kind: Number, Low: 1, High: 1 << 31, Since: at(2)},
	{Name: "TORCH_NCCL_NAN_CHECK", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_RETHROW_CUDA_ERRORS", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_HIGH_PRIORITY", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_AVOID_RECORD_STREAMS", Torch: true, Kind: Switch},
	{Name: "TORCH_NCCL_CUDA_EVENT_CACHE", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_PROPAGATE_ERROR", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_BCAST_UNIQUEID", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_EXTRA_DUMP_ON_EXEC", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_RANKS_PER_ROOT", Torch: true, Kind: Number, Since: at(2)},
	{Name: "TORCH_NCCL_NONBLOCKING_TIMEOUT", Torch: true, Kind: Text},
	{Name: "TORCH_NCCL_USE_COMM_NONBLOCKING", Torch: true, Kind: Text},
	{Name: "TORCH_NCCL_TEARDOWN_ON_TIMEOUT", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", Torch: true, Kind: Switch, Since: at(2), Former: "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"},
	{Name: "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", Torch: true, Kind: Switch, Instead: "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", Deprecated: at(2)},

	// Names of recent releases for the flight recorder; the older ones above are read too.
	{Name: "TORCH_FR_BUFFER_SIZE", Torch: true, Kind: Number, Low: 0, High: 1 << 31, Since: at(2)},
	{Name: "TORCH_FR_CPP_STACK", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_FR_DUMP_ON_TIMEOUT", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_FR_DUMP_TEMP_FILE", Torch: true, Kind: File, Since: at(2)},
	{Name: "TORCH_FR_DUMP_DYNAMIC_FILE_NAME", Torch: true, Kind: Switch, Since: at(2)},
	{Name: "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", Torch: true, Kind: Number, Low: 0, High: 1 << 31, Since: at(2)},

	{Name: "TORCH_DISTRIBUTED_DEBUG", Torch: true, Kind: Word, Words: []string{"OFF", "INFO", "DETAIL"}},
}
