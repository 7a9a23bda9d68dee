// Package allocator knows the settings of PyTorch's caching allocator for GPU memory:
// which version of torch reads which key under which name of variable, what values it
// takes, and what it makes of the rest. A key that a version does not know ends the
// program at its first use of a GPU, so that nothing is written but what is known to be
// read. It is pure: text and versions in, text and findings out; it knows nothing of job
// files, hosts and ranks.
//
// Facts are from PyTorch's documentation ("CUDA semantics", Optimizing memory usage) and
// from its source: c10/cuda/CUDAAllocatorConfig.{h,cpp}, c10/core/AllocatorConfig.{h,cpp}
// and c10/cuda/CUDACachingAllocator.cpp. Which release knows which key, and which variable
// wins, was seen in the libraries and headers of the released wheels of 1.13.1 to 2.15.0.
package allocator
