variable "seeds" { default = [1, 2] }

job "sweep" {
  command = ["python", "small.py"]
  mode    = "independent"
  hosts "local" {}
  ranks { per_host = 2 }
  env = { SEED = rank.global, OF = rank.world_size }
  tasks = [
    ["--lr", 0.1, "--name", "a b"],
    "--lr 0.2 --name 'c d'",
    [],
    ["--seed", var.seeds[1]],
  ]
}
