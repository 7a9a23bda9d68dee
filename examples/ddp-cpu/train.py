"""Data-parallel training on CPUs: plain PyTorch, nothing in it knows its launcher.

It resumes from its checkpoint, and when it is told to stop (SIGTERM) it writes one
more before it leaves.
"""

import argparse
import os
import signal
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def batch(step, rank):
    """A rank's data of a step, made from a seed: every run sees the same."""
    seed = torch.Generator().manual_seed(1_000_003 * step + rank)
    x = torch.randn(256, 32, generator=seed)
    return x, torch.sin(x).sum(dim=1, keepdim=True)


def save(path, **state):
    """Writes a checkpoint that is complete or not there, whatever happens meanwhile."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def load(path):
    """Returns the checkpoint of rank 0's host, or None: hosts need not share a disk."""
    state = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        state = [torch.load(path)]
    dist.broadcast_object_list(state, src=0)
    return state[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--checkpoint-dir", default="checkpoints")
    args = parser.parse_args()
    path = os.path.join(args.checkpoint_dir, "last.pt")

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    dist.init_process_group("gloo")  # RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT say how
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)

    def say(text):
        if rank == 0:
            print(text)

    first = 0
    if state := load(path):
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        say(f"resuming at step {first} from {path}")
    else:
        say(f"starting with {world} ranks; there is no {path}")

    for step in range(first, args.steps):
        x, y = batch(step, rank)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        # One sum over all ranks: their losses, and how many were told to stop. A signal
        # reaches each at another moment, but all must leave after the same step.
        total = torch.tensor([loss.item(), stop.is_set()], dtype=torch.float64)
        dist.all_reduce(total)
        say(f"step {step} loss {total[0] / world:.7f}")
        stopping, done = total[1] > 0, step + 1
        if rank == 0 and (stopping or done % args.save_every == 0 or done == args.steps):
            save(path, step=done, model=net.state_dict(), optimizer=optimizer.state_dict())
        if stopping:
            say(f"told to stop: step {done} is next, saved in {path}")
            break

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
