# A real PyTorch training on the CPUs of several hosts: DDP over gloo, two ranks a host.
#
# Each host needs a Python with torch (pip install torch numpy) and the training script.
# Nothing of muster has to be there, and the hosts need no disk in common. For your own:
#
#   for h in gpu01 gpu02; do scp -r examples/ddp-cpu $h:; done
#   bin/muster run examples/ddp-cpu.hcl -var 'hosts=["gpu[01-02]"]' -var python=/home/me/venv/bin/python
#
# Press Ctrl-C in the middle: the ranks write a checkpoint before they leave. Run it again:
# it goes on at that step. examples/ddp-local.hcl is the same training on this machine.
#
# No hosts at hand? As root on Linux, in another terminal, with the environment that
# muster's own tests use (2.9 GB) and the Python that it was made with:
#
#   make hosts N=3 KEEP="$(.ci/torch) $(python3 -c 'import sys; print(sys.base_prefix)')"
#
# That prints HOME=... for the commands here. Its hosts see this source tree, too:
#
#   python=$(.ci/torch)/bin/python
#   HOME=... bin/muster run examples/ddp-cpu.hcl -var 'hosts=["node[1-3]"]' -var python=$python \
#     -var workdir=$PWD/examples/ddp-cpu -var checkpoint_dir=/root/checkpoints
variable "hosts" {
  description = "as ssh knows them; the first one keeps the checkpoint"
  default     = ["node1", "node2"]
}
variable "python" {
  description = "a Python with torch, on every host"
  default     = "python3"
}
variable "workdir" {
  description = "where train.py lies on every host"
  default     = "~/ddp-cpu"
}
variable "checkpoint_dir" {
  description = "seen from workdir"
  default     = "checkpoints"
}
variable "steps" { default = 300 }

job "ddp-cpu" {
  command = [
    var.python, "train.py",
    "--steps", var.steps,
    "--checkpoint-dir", var.checkpoint_dir,
  ]
  workdir = var.workdir

  hosts "ssh" {
    names = var.hosts
  }
  ranks {
    per_host = 2
    devices  = "none" # it trains on CPUs; otherwise each rank gets a GPU, where there are any
  }

  # After Ctrl-C or a failure elsewhere: as long as a step and a checkpoint may take.
  stop { grace = "30s" }
}
