// Package failure says why a worker died: evidence in, a class with its reasons out; and
// which of several ranks failed first. It is pure: no clock, no file, no process, the same
// verdict for the same evidence. What becomes of the run is decided by its package
// restart; the kinds of failures are listed by class, the texts of programs are taken
// apart by lines.
//
// The rules, and where they come from:
//   - The exit status comes first. A worker that ended with 0 has not failed, whatever it
//     wrote; what it wrote is then a note.
//   - Whole phrases of allocators, drivers and libraries are evidence, single words are
//     not: programs speak of memory too. The hint in PyTorch's message ("try setting
//     max_split_size_mb") is printed always and is no evidence.
//   - SIGKILL is the kernel's for want of memory only where a counter or its log says so.
//   - What somebody else's death makes of a worker is a consequence, and ranks below any
//     cause, whichever was seen first.
//
// Phrases are those of PyTorch 1.0 to 2.15 (c10/cuda/CUDACachingAllocator.cpp,
// torch/csrc/distributed/c10d), NCCL 2.7 to 2.30, gloo, JAX, TensorFlow, Linux 3.10 to 6.x
// (mm/oom_kill.c) and NVIDIA's driver, as they stand in public reports: see testdata/oom.
package failure
