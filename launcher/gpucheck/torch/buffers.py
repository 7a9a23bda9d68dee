"""Says how much memory of a GPU each rank on it takes when NCCL makes a communicator of all
ranks and uses it. Its argument is how many ranks are on a GPU."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

rank, world, sharers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0)


def meet(where):
    """Waits for all ranks, without a communicator."""
    store.add(where, 1)
    while store.add(where, 0) < world:
        time.sleep(0.02)


numbers = torch.ones(16 << 20, device="cuda")
torch.cuda.synchronize()
meet("have tensors")
before = torch.cuda.mem_get_info()[0]
meet("have looked")
dist.init_process_group("nccl", store=store, rank=rank, world_size=world)
for _ in range(3):
    dist.all_reduce(numbers)
torch.cuda.synchronize()
meet("have reduced")
after = torch.cuda.mem_get_info()[0]
meet("have looked again")
print(json.dumps({"world": world, "took": (before - after) // sharers}), flush=True)
dist.destroy_process_group()
meet("have ended")  # rank 0 has the store
