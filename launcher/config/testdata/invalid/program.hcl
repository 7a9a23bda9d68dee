job "j" {
  command = ["python", "train.py"]
  program = "jax"
  hosts "local" {}
  env = {
    JAX_COORDINATOR_ADDRESS = "10.0.0.1:1234"   # want: Variable belongs to muster
  }
}
