"""Takes memory of a GPU, for which torch reads its allocator's settings, and says which."""
import json
import os

import torch

torch.cuda.init()
block = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
block.fill_(1)
torch.cuda.synchronize()
names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
print(json.dumps({"held": block.numel(), "settings": {name: os.environ[name] for name in names if name in os.environ}}), flush=True)
