# Four ranks on this machine say who they are. Nothing has to be installed.
job "local" {
  command = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE on $(hostname), to meet at $MASTER_ADDR:$MASTER_PORT"]

  hosts "local" {}
  ranks {
    per_host = 4
    devices  = "none" # otherwise each rank gets a GPU, where there are any
  }
}
