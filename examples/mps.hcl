# Many small programs on two GPUs: four on each at once, by CUDA's MPS, each with a share.
#
#   bin/muster plan examples/mps.hcl
#   bin/muster run examples/mps.hcl
#   bin/muster status -                      # who is a client, and how much memory it has
#
# Each GPU gets an MPS daemon of the run's own, which ends with the run. NCCL refuses two
# ranks of a job on one GPU, so this is for programs that do not talk to each other.
job "small-ones" {
  command = ["python", "small.py"]
  mode    = "independent"

  hosts "local" {}

  ranks { devices = [0, 1] }                 # numbers of nvidia-smi

  mps {
    ranks_per_gpu            = 4
    active_thread_percentage = 50            # of a GPU, each at most; or a list, one for each
    pinned_memory_limit      = "18GiB"       # of its memory, likewise
  }

  tasks = [
    ["--lr", 0.1], ["--lr", 0.03], ["--lr", 0.01], ["--lr", 0.003],
    ["--lr", 0.001], ["--lr", 0.0003], ["--lr", 0.0001], ["--lr", 0.00003],
  ]
}
