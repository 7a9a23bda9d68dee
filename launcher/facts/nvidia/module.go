package nvidia

import (
	"strconv"
	"strings"

	"github.com/muster-dev/muster/launcher/hostfs"
)

// ModuleVersion is that of the kernel module that is loaded, such as "550.54.15"; "" where
// there is none.
func ModuleVersion(root hostfs.Root) string { return root.Read("/sys/module/nvidia/version") }

// PeerMemory reports whether network adapters can reach the memory of GPUs by themselves
// (GPUDirect RDMA): by a module for that, or by the kernel's dma-buf from 5.12 on with the
// open driver. Nil where files do not prove either: without the driver, with an older kernel
// that may have had it added, and with EFA, which brings its own way.
func PeerMemory(root hostfs.Root, kernel string) *bool {
	yes, no := true, false
	const modules = "/sys/module/"
	driver := root.Read("/proc/driver/nvidia/version")
	switch {
	case !root.Exists(modules + "nvidia"):
		return nil
	case root.Exists(modules+"nvidia_peermem") || root.Exists(modules+"nv_peer_mem"):
		return &yes
	case driver == "" || root.Exists(modules+"efa"):
		return nil
	case !strings.Contains(driver, "Open Kernel Module"):
		return &no
	case hasDMABuf(kernel):
		return &yes
	}
	return nil
}

// hasDMABuf reports whether a kernel's InfiniBand takes dma-bufs: from 5.12 on.
func hasDMABuf(release string) bool {
	const major, minor = 5, 12
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}
