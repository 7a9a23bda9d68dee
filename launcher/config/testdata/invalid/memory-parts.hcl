job "memory" {
  command = ["python", "train.py"]
  hosts "local" {}
  ranks { groups = { pipeline = 2 } }
  memory {
    parameters        = "7B"
    trainable         = "8B"            # want: Invalid number of parameters
    strategy          = "fsdp"
    largest_unit      = "7.1B"          # want: Invalid number of parameters
    first_stage_extra = "4B"
    last_stage_extra  = "4B"            # want: Invalid number of parameters
  }
}
