"""Says which torch this Python imports, and what it can do here."""
import json
import sys

import torch
import torch.distributed as dist

nccl = ""
if dist.is_available() and dist.is_nccl_available():
    version = torch.cuda.nccl.version()
    nccl = ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version)
print(json.dumps({"torch": torch.__version__, "nccl": nccl, "cuda": torch.cuda.is_available(), "python": sys.executable}))
