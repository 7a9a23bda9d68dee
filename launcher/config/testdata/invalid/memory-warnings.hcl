job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  memory {
    parameters              = "7B"
    strategy                = "zero2"
    schedule                = "1f1b"    # warn: No effect
    first_stage_extra       = "1M"      # warn: No effect
    last_stage_extra        = "1M"      # warn: No effect
    last_stage_activations  = "1GiB"    # warn: No effect
    sequence_parallel       = true      # warn: No effect
    largest_unit            = "1M"      # warn: No effect
    gradient_as_bucket_view = true      # warn: No effect
    micro_batch_size        = 4         # warn: No effect
    micro_batches           = 8         # warn: No effect
    optimizer               = "lion"
    fused                   = true      # warn: No effect
  }
}
