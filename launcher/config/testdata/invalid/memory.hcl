job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory "x" {                          # want: Unexpected label
    parameters       = "7GB"            # want: Invalid number of parameters
    trainable        = 0                # want: Invalid share
    dtype            = "half"           # want: Invalid value
    gradient_dtype   = "int8"           # want: Invalid value
    master_weights   = "maybe"          # want: Wrong type
    optimizer        = "adamw8bit"      # want: Invalid value
    optimizer_dtype  = 32               # want: Invalid value
    strategy         = "zero"           # want: Invalid value
    activations      = 4                # want: Wrong type
    checkpointing    = 1                # want: Wrong type
    micro_batch_size = 0                # want: Invalid number
    micro_batches    = "many"           # want: Invalid number
    schedule         = "interleaved"    # want: Invalid value
    precision        = "bf16"           # want: Unsupported argument
    lora             = 0.1              # want: Unsupported argument
    fused            = "yes"            # want: Wrong type
    cpu_offload      = 1                # want: Wrong type
    offload          = true             # want: Unsupported argument
    largest_unit     = 200              # want: Invalid number of parameters
    plan {}                             # want: Unsupported block type
  }
}
