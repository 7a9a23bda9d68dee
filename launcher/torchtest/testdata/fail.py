"""Rank 1 fails by itself, while rank 0 waits in all_reduce for rank 2, which never comes."""

import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def forward(layer):
    raise ValueError(f"no such layer: {layer}")


@record
def main():
    dist.init_process_group("gloo")
    pair = dist.new_group([0, 2])
    dist.barrier()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1), group=pair)
    elif dist.get_rank() == 1:
        time.sleep(0.5)  # rank 0 is in all_reduce by then
        forward("attention.7")
    time.sleep(600)


main()
