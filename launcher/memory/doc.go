// Package memory estimates what the ranks of a training job need of their GPUs' memory, and what would lessen it:
// from a description of the model and the way it is split, in whole numbers, so that every machine comes to the same.
// It knows neither job files nor how GPUs were looked at.
//
// What a parameter costs is from the ZeRO paper (Rajbhandari et al., 2019, arXiv 1910.02054, section 3): in mixed
// precision with Adam 2 bytes for it, 2 for its gradient and 12 for the optimizer (a copy in fp32 and two moments).
// How activations are divided by tensor parallelism is from Korthikanti et al., 2022 (arXiv 2205.05198, section 4),
// how many micro-batches a pipeline stage holds from Narayanan et al., 2021 (arXiv 2104.04473, section 2), 4-bit
// parameters from QLoRA (Dettmers et al., 2023, arXiv 2305.14314), what offloading leaves to hosts from ZeRO-Offload
// (Ren et al., 2021, arXiv 2101.06840). What the optimizer's step has is from torch.optim's source, what DDP and FSDP
// add from the documentation of torch.nn.parallel.DistributedDataParallel and torch.distributed.fsdp, DeepSpeed's
// buckets from its configuration reference.
package memory
