"""Has NCCL make a communicator of all ranks and add something up."""
import json
import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
numbers = torch.ones(1 << 20, device="cuda")
dist.all_reduce(numbers)
torch.cuda.synchronize()
print(json.dumps({"sum": numbers[-1].item(), "world": dist.get_world_size()}), flush=True)
dist.destroy_process_group()
