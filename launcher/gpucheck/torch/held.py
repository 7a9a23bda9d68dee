"""Holds memory of a GPU, part of it in tensors and part in torch's cache, and says how much,
until the file that its argument names is there."""
import json
import os
import sys
import time

import torch

kept = torch.empty(768 << 20, dtype=torch.uint8, device="cuda").fill_(1)
cached = torch.empty(256 << 20, dtype=torch.uint8, device="cuda").fill_(1)
del cached
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
print(json.dumps({
    "rank": os.environ["RANK"], "local_rank": os.environ["LOCAL_RANK"], "pid": os.getpid(), "uuid": os.environ["MUSTER_DEVICE"],
    "memory": {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(), "total": total},
}), flush=True)
end = time.monotonic() + 45
while time.monotonic() < end and not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
