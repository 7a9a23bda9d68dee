"""What ranks measure for muster check --collective.

Each phase runs in a child of its own, which is ended when its time is over: what hangs
inside of a library cannot be ended otherwise, and the next phase begins anew. Each tells
its result in a line of JSON. The store that ranks meet by lives in one more child of rank 0.
"""

import datetime
import json
import os
import select
import signal
import sys
import time

ASK = json.loads(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL = int(os.environ.get("LOCAL_RANK", "0"))
LIMIT = ASK["limit"]
CUDA = ASK["backend"] == "nccl"


LONGEST = 4 * LIMIT * (len(ASK["rounds"]) + 3)  # of all phases


class Unusable(Exception):
    """torch cannot use what the ranks are to compute on."""


def fault_of(error):
    """The kind of an error that is the program's own; "" of what CUDA, NCCL and gloo meet
    with: those raise RuntimeError and what is derived from it, and so does want of memory."""
    kind = type(error).__name__
    return "" if isinstance(error, (RuntimeError, OSError)) and kind != "OutOfMemoryError" else kind


def say(result):
    sys.stdout.write(json.dumps(dict(result, rank=RANK)) + "\n")
    sys.stdout.flush()


def ranks_of(hosts):
    first = 0
    ranks = []
    for host, count in enumerate(ASK["ranks"]):
        if host in hosts:
            ranks.extend(range(first, first + count))
        first += count
    return ranks


def my_host():
    return next(h for h in range(len(ASK["ranks"])) if RANK in ranks_of([h]))


def words_of(error):
    return (str(error).strip() or repr(error))[-500:]


class Child:
    """A function in a process of its own, which tells a pipe how far it is."""

    def __init__(self, function):
        self.pipe, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self.pipe)
            self.live(function, told)
        os.close(told)

    @staticmethod
    def live(function, told):
        def tell(**result):
            os.write(told, (json.dumps(result) + "\n").encode())

        try:
            function(tell)
        except BaseException as error:  # whatever it is, it is the result
            tell(error=words_of(error), fault=fault_of(error))
        os._exit(0)

    def results(self, first, limit):
        """What it tells, until it ends, or is silent for the first limit, later for the other."""
        text, until = b"", time.monotonic() + first
        while True:
            ready, _, _ = select.select([self.pipe], [], [], max(0, until - time.monotonic()))
            more = os.read(self.pipe, 65536) if ready else b""
            if not more:
                self.end()
                break
            text, until = text + more, time.monotonic() + limit
        os.close(self.pipe)
        return [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")], not ready

    def end(self):
        os.kill(self.pid, signal.SIGKILL)  # it is not reaped yet: the number is its own
        os.waitpid(self.pid, 0)


def phase(name, function):
    """Runs a phase, says what came of it and returns that. Whoever comes to it late may have
    been held up by the one before."""
    said, silent = Child(function).results(3 * LIMIT, LIMIT + 5)
    result = {"phase": name, "state": "met"}
    for one in said:
        result.update(one)
    if result["state"] == "met":
        result["state"] = "hung" if silent else "failed"
    say(result)
    return result


def timeout(seconds=LIMIT):
    return datetime.timedelta(seconds=seconds)


def serve(tell):
    """The store that all phases meet by."""
    from torch.distributed import TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, True, timeout(), wait_for_workers=False)
    tell(state="serving", port=store.port)
    while True:
        time.sleep(3600)  # until it is ended


def connect():
    from torch.distributed import TCPStore

    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, False, timeout(), wait_for_workers=False)


def meet(prefix, ranks):
    """The store, once all these ranks have come to this phase."""
    from torch.distributed import PrefixStore

    own = PrefixStore(prefix, connect())
    own.set("here/%d" % RANK, "1")
    own.wait(["here/%d" % r for r in ranks], timeout(2 * LIMIT))
    return own


def device():
    import torch

    if not CUDA:
        torch.set_num_threads(1)
        return torch.device("cpu")
    try:
        torch.cuda.set_device(LOCAL)
        torch.zeros(1, device="cuda")
    except Exception as error:
        if fault_of(error) == "OutOfMemoryError":
            raise
        raise Unusable(words_of(error)) from error
    if not torch.distributed.is_nccl_available():
        raise Unusable("this torch has no NCCL")
    return torch.device("cuda", LOCAL)


def settle(where):
    if where.type == "cuda":
        import torch

        torch.cuda.synchronize(where)


def all_reduce(prefix, ranks):
    """An all-reduce of these ranks, larger until it takes long enough to be measured."""

    def run(tell):
        try:
            store = meet(prefix, ranks)
        except Exception as error:
            tell(state="late", error=str(error)[-500:])
            return
        tell(state="met")
        import torch
        import torch.distributed as dist

        where = device()
        me, n = ranks.index(RANK), len(ranks)
        dist.init_process_group(ASK["backend"], store=store, rank=me, world_size=n, timeout=timeout())
        wrong, best, size = 0, 0.0, 0
        for size in ASK["sizes"]:
            steps = (torch.arange(size // 4, dtype=torch.int32, device=where) % 13).to(torch.float32)
            want = steps * n + n * (n + 1) // 2  # exact: small whole numbers
            worst = None
            for _ in range(5):
                mine = steps + (me + 1)
                dist.barrier()
                settle(where)
                began = time.monotonic()
                dist.all_reduce(mine)
                settle(where)
                took = torch.tensor([time.monotonic() - began], dtype=torch.float64, device=where)
                wrong = max(wrong, int((mine != want).sum()))
                dist.all_reduce(took, op=dist.ReduceOp.MAX)
                worst = float(took) if worst is None else min(worst, float(took))
                if worst > ASK["enough"]:
                    break
            best = worst
            tell(state="met")
            if best > ASK["enough"]:
                break
        tell(state="ok", bytes=size, seconds=best, wrong=wrong)
        store.set("left/%d" % RANK, "1")  # whoever ends early takes its connections along
        store.wait(["left/%d" % r for r in ranks], timeout(5))

    return run


def compute(tell):
    """A product of matrices whose result is known exactly."""
    tell(state="met")
    import torch

    where = device()
    n = 4096 if CUDA else 256
    index = torch.arange(n, device=where)
    weights = (index % 3).to(torch.float32)
    left = (index % 7 + 1).to(torch.float32)[:, None] * weights[None, :]
    right = torch.ones(n, device=where)[:, None] * (index % 5 + 1).to(torch.float32)[None, :]
    want = (index % 7 + 1).to(torch.float32)[:, None] * (index % 5 + 1).to(torch.float32)[None, :] * weights.sum()
    wrong, best, until = 0, None, time.monotonic() + 1
    while best is None or time.monotonic() < until:
        settle(where)
        began = time.monotonic()
        got = left @ right
        settle(where)
        took = time.monotonic() - began
        best = took if best is None else min(best, took)
        wrong = max(wrong, int((got != want).sum()))
    result = {"state": "ok", "seconds": best, "wrong": wrong}
    if CUDA:
        result.update(name=torch.cuda.get_device_name(where), pcie=pcie(where))
    tell(**result)


def pcie(where):
    """The link to the machine while it is used, as the kernel has it: an idle one is slow."""
    import torch

    try:
        p = torch.cuda.get_device_properties(where)
        folder = "/sys/bus/pci/devices/%04x:%02x:%02x.0/" % (p.pci_domain_id, p.pci_bus_id, p.pci_device_id)
    except AttributeError:
        return None  # an older torch does not tell where it is
    page, there = torch.ones(64 << 20, dtype=torch.uint8).pin_memory(), torch.empty(64 << 20, dtype=torch.uint8, device=where)
    until = time.monotonic() + 0.5
    found = None
    while time.monotonic() < until:
        for _ in range(4):
            there.copy_(page, non_blocking=True)
        try:
            found = {name: open(folder + name).read().split()[0] for name in ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")}
        except (OSError, IndexError):
            return None
        settle(where)
    return found


def all_can(can):
    """Whether all ranks can go on. Where one cannot, the others would wait for it in each
    phase, and nothing that lies between them is the reason."""

    def ask(tell):
        store = connect()
        if not can:
            store.add("cannot", 1)
        meet("can", range(WORLD))
        tell(cannot=store.add("cannot", 0))

    said, _ = Child(ask).results(3 * LIMIT, LIMIT)
    return not any(one.get("cannot") for one in said)


def done(tell):
    """Keeps the store until nobody needs it."""
    tell(state="met")
    store = meet("done", [RANK])
    if RANK == 0:
        store.wait(["here/%d" % r for r in range(WORLD)], timeout(LONGEST))


def main():
    if sum(ASK["ranks"]) != WORLD:
        sys.exit("the plan has changed meanwhile: %d ranks, not %d" % (WORLD, sum(ASK["ranks"])))
    try:
        import torch  # once, for all children
    except Exception as error:
        say({"phase": "torch", "state": "failed", "error": words_of(error), "fault": type(error).__name__})
        sys.exit("torch cannot be loaded")
    say({"phase": "torch", "state": "ok", "version": torch.__version__})
    store = Child(serve) if RANK == 0 and WORLD > 1 else None
    can = not phase("compute", compute).get("fault")
    if WORLD > 1:
        if all_can(can):
            together()
        Child(done).results(LONGEST, LONGEST)
    if store is not None:
        store.end()


def together():
    phase("all", all_reduce("all", list(range(WORLD))))
    for number, pairs in enumerate(ASK["rounds"]):
        for pair in pairs:
            if my_host() in pair:
                phase("round %d" % number, all_reduce("%d/%d-%d" % (number, pair[0], pair[1]), ranks_of(pair)))


main()
