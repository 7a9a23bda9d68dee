"""A caching allocator of two devices as torch.cuda shows it, for modules that stand in for
torch. Kinds of numbers are those of the version that is asked for."""

CUDA_CALLS = []  # what a program would have had done on a device


class Pool(object):
    def __init__(self, total=10 << 30):
        self.total = total
        self.blocks = []  # [size, in use]
        self.peak = [0, 0]
        self.ooms = 0

    def allocate(self, size):
        for block in self.blocks:
            if not block[1] and block[0] >= size:
                block[1] = True
                break
        else:
            if self.reserved() + size > self.total:
                self.ooms += 1
                return False
            self.blocks.append([size, True])
        self.peak = [max(self.peak[0], self.allocated()), max(self.peak[1], self.reserved())]
        return True

    def free(self, size):
        for block in self.blocks:
            if block == [size, True]:
                block[1] = False
                return

    def allocated(self):
        return sum(size for size, used in self.blocks if used)

    def reserved(self):
        return sum(size for size, _ in self.blocks)

    def stats(self, more=()):
        def four(current, peak):
            numbers = {"current": current, "peak": peak, "allocated": peak, "freed": peak - current}
            return {"all": numbers, "small_pool": dict(numbers), "large_pool": dict(numbers)}

        used = sum(1 for _, u in self.blocks if u)
        result = {
            "allocation": four(used, used),
            "segment": four(len(self.blocks), len(self.blocks)),
            "active": four(used, used),
            "inactive_split": four(0, 0),
            "allocated_bytes": four(self.allocated(), self.peak[0]),
            "reserved_bytes": four(self.reserved(), self.peak[1]),
            "active_bytes": four(self.allocated(), self.peak[0]),
            "inactive_split_bytes": four(0, 0),
            "num_alloc_retries": 0,
            "num_ooms": self.ooms,
            "max_split_size": -1,
            "oversize_allocations": {"current": 0, "peak": 0, "allocated": 0, "freed": 0},
            "oversize_segments": {"current": 0, "peak": 0, "allocated": 0, "freed": 0},
        }
        for name in more:
            result[name] = four(0, 0)
        return result

    def segments(self, device):
        return [
            {
                "device": device, "address": i << 30, "total_size": size, "segment_type": "large",
                "blocks": [{"size": size, "state": "active_allocated" if used else "inactive"}],
            }
            for i, (size, used) in enumerate(self.blocks)
        ]
