package facts

// MPS is what there is of CUDA's Multi-Process Service on a host.
type MPS struct {
	// Program is the path of nvidia-cuda-mps-control; "" where there is none.
	Program string `json:"program,omitempty"`
	// Daemons are the control daemons that run there, whoever has started them.
	Daemons []MPSDaemon `json:"daemons,omitempty"`
	// Left is set where CUDA's own pipe directory, or the one that the host's environment
	// names, has the sockets of a daemon that is no more: who left it.
	Left string `json:"left,omitempty"`
}

// MPSDaemon is a control daemon of MPS.
type MPSDaemon struct {
	PID  int    `json:"pid"`
	User string `json:"user"`
	// Told is set where its environment could be read: the three below are known then.
	Told    bool    `json:"told"`
	Pipe    string  `json:"pipe_directory,omitempty"`
	Devices *string `json:"visible_devices,omitempty"` // CUDA_VISIBLE_DEVICES; nil: not set, so all
	Run     string  `json:"run,omitempty"`             // of muster, that it belongs to
	// Lost is set where its pipe directory has no sockets any more: processes that look for
	// it run without MPS, and say nothing.
	Lost bool `json:"lost,omitempty"`
}
