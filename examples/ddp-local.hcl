# A real PyTorch training on this machine: DDP over gloo, four ranks. It needs a Python with
# torch (pip install torch numpy). From the top of this source tree:
#
#   bin/muster run examples/ddp-local.hcl
#   bin/muster run examples/ddp-local.hcl -var python=$HOME/venv/bin/python
#   bin/muster run examples/ddp-local.hcl -var python=$(.ci/torch)/bin/python
#
# (.ci/torch makes the environment that muster's own tests use, 2.9 GB.)
#
# Press Ctrl-C in the middle, then run it again: it goes on at the step where it was.
variable "python" { default = "python3" }
variable "steps" { default = 300 }
variable "checkpoint_dir" { default = "/tmp/muster-ddp-local" }

job "ddp-local" {
  command = [
    var.python, "examples/ddp-cpu/train.py",
    "--steps", var.steps,
    "--checkpoint-dir", var.checkpoint_dir,
  ]
  hosts "local" {}
  ranks {
    per_host = 4
    devices  = "none" # it trains on CPUs; otherwise each rank gets a GPU, where there are any
  }
}
