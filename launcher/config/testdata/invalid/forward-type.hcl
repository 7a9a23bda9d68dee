job "forward" {
  command = ["x"]
  hosts "local" {}
  forward = "WANDB_*"   # want: Wrong type
}
