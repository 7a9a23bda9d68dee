# var: model=6.74B
variable "model" {}

job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  ranks {
    per_host = 8
    groups   = { pipeline = 4, tensor = 2 }
  }
  memory {
    parameters             = var.model
    trainable              = "0.5%"
    dtype                  = "nf4"
    gradient_dtype         = "fp32"
    master_weights         = false
    optimizer              = "adamw_8bit"
    optimizer_dtype        = "bf16"
    strategy               = "zero3"
    cpu_offload            = true
    activations            = "1.5GiB"
    checkpointing          = true
    micro_batch_size       = 4
    micro_batches          = 8
    schedule               = "gpipe"
    sequence_parallel      = true
    largest_unit           = "220M"
    first_stage_extra      = "131M"
    last_stage_extra       = 131000000
    last_stage_activations = "500MiB"
  }
}
