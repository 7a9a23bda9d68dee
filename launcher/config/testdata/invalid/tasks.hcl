job "sweep" {
  command = ["python", "small.py"]
  mode    = "independent"
  program = "jax"               # want: Ranks that do not talk
  hosts "local" {}
  ranks {
    per_host = 2
    backend  = "gloo"           # want: Ranks that do not talk
    groups   = { tensor = 2 }   # want: Ranks that do not talk
  }
  early_exit { limit = "1m" }   # warn: Without effect
  tasks = [
    ["--lr", null],             # want: Wrong type
    "--name 'open",             # want: Invalid task
    { lr = 0.1 },               # want: Wrong type
    7,                          # want: Wrong type
  ]
}
