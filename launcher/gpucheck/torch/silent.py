"""Is silent on a GPU, in the way that its argument names.

spins  a kernel keeps the GPU busy without traffic to its memory, as NCCL's do while they
       wait for a rank that does not come
works  memory is copied, as an evaluation that prints nothing computes
"""
import faulthandler
import signal
import sys
import time

import torch

faulthandler.register(signal.SIGUSR1, all_threads=True)


def works(seconds):
    one = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(one)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            other.copy_(one)
        torch.cuda.synchronize()


def spins(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:  # a kernel at a time, so that none is left for long
        torch.cuda._sleep(1_000_000_000)
        torch.cuda.synchronize()


print("step 1", flush=True)
works(5)
print("step 2", flush=True)
if sys.argv[1] == "spins":
    spins(30)
else:
    works(10)
