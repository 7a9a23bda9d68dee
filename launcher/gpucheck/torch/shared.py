"""Shares a GPU with other clients of MPS: computes on it, says what it can have of it, and
stays until the file that its first argument names is there. Its second argument is how many
bytes are more than it may have."""
import json
import os
import sys
import time

import torch

numbers = torch.ones(4096, 4096, device="cuda")
total = (numbers @ numbers).sum().item()
free, _ = torch.cuda.mem_get_info()
try:
    torch.empty(int(sys.argv[2]), dtype=torch.uint8, device="cuda")
    refused = False
except torch.cuda.OutOfMemoryError:
    refused = True
device = torch.cuda.get_device_properties(0)
uuid = getattr(device, "uuid", None)  # since torch 2.5
print(json.dumps({
    "rank": os.environ["RANK"], "local_rank": os.environ["LOCAL_RANK"], "pid": os.getpid(),
    "uuid": f"GPU-{uuid}" if uuid else os.environ["MUSTER_DEVICE"],
    "share": {"right": total == 4096.0 ** 3, "refused": refused, "free": free, "processors": device.multi_processor_count},
}), flush=True)
end = time.monotonic() + 50
while time.monotonic() < end and not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
