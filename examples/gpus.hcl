# A training on the GPUs of two hosts: one rank per GPU, in groups of four that talk a lot.
#
# What the job file says of GPUs, and what becomes of it, shows before anything starts:
#
#   bin/muster plan examples/gpus.hcl
#   bin/muster run examples/gpus.hcl -- --lr 3e-4
#
# Put your own hosts, script and environment in place of these. The script does as with
# torchrun: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])).
variable "tensor" {
  description = "ranks that share the layers of a model, and need NVLink between them"
  default     = 4
}

job "gpus" {
  command = ["python", "train.py", "--tensor-parallel", var.tensor]
  workdir = "~/train"
  python  = "~/venv/bin/python"            # muster looks at the torch of this one
  setup   = "source ~/venv/bin/activate"   # once per host, by bash; its exports reach the ranks

  hosts "ssh" {
    names = ["gpu[01-02]"]                 # as ssh knows them

    host "gpu02" {                         # eight GPUs, of which these are used, in this order:
      ranks { devices = [4, 5, 6, 7] }     # numbers of nvidia-smi, "GPU-..." UUIDs, PCI addresses
    }
  }

  ranks {
    per_host = "gpu"                       # a host without GPUs is an error
    devices  = "all"                       # or a number: so many idle ones of each host
    backend  = "nccl"

    # Ranks 0-3, 4-7, ... sit on GPUs that reach each other by NVLink. Sizes nest: each one
    # divides the next larger one.
    groups = { tensor = var.tensor }
  }

  check { severity = { slow_group = "fail" } } # where they cannot, nothing starts; without it: a warning

  env = { NCCL_DEBUG = "WARN" }

  stop { grace = "60s" }                   # as long as a step and a checkpoint may take
}
