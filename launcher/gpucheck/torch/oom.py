"""Runs out of GPU memory in the way that its argument names, and says what torch knew then.

capacity       tensors fill the device
fragmentation  most of the device is reserved in segments that are all partly in use, which
               can neither be given back nor hold what is asked for
foreign        more is asked for than somebody else has left
"""
import json
import sys

import torch

kind = sys.argv[1]
held = []
requested = 0


def take(size):
    global requested
    requested = int(size)
    return torch.empty(requested, dtype=torch.uint8, device="cuda")


free, total = torch.cuda.mem_get_info()
try:
    if kind == "capacity":
        for _ in range(9):
            held.append(take(total / 8))
    elif kind == "fragmentation":
        segment = int(total * 0.9 / 64)
        whole = [take(segment) for _ in range(64)]
        del whole
        held = [take(segment * 0.6) for _ in range(64)]
        take(total * 0.3)
    else:
        take(total * 0.6)
except torch.cuda.OutOfMemoryError:
    print(json.dumps({
        "requested": requested, "total": total, "free": free,
        "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
    }), flush=True)
    raise
