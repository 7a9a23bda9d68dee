"""Tells muster, over the datagram socket in MUSTER_SOCKET, what torch's caching allocator
holds. It never raises into the program, prints nothing, initialises no CUDA, and starts a
thread only once the program has initialised CUDA by torch.

It reads as Python 2.7 too: a job may start one, and its sitecustomize must not fail."""
import os
import sys

PACE = 1.0  # seconds between two looks
REPEAT = 10.0  # seconds after which the same is told again
DEVICES = 64
BLOCKS = 4096  # of the allocator, up to which the largest free one is looked for
SNAPSHOT_SHARE = 200  # times what such a look took pass until the next one
SNAPSHOT_PACE = 10.0
DUMPS = 2  # files per process and reason
SIGNALS = "SIGHUP SIGINT SIGQUIT SIGTERM SIGUSR1 SIGUSR2 SIGALRM SIGVTALRM SIGPROF SIGCHLD SIGCONT SIGWINCH".split()

told_trouble = [False]
started = [0]  # pid of the process whose thread runs; a fork has none
dumped = {}
left = [False]


def leave(path):
    """Takes this folder out of sys.path, as it is nothing of the program's; true where that
    was done before, so that nobody else's sitecustomize is to be found."""
    folder = os.path.dirname(os.path.abspath(path))
    before, left[0] = left[0], True
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    return before


def tell(*lines):
    """Sends lines, and returns whether muster has them. The socket lives no longer than
    that: a program that closes all descriptors must not find one of ours, nor we one of
    its."""
    path = os.environ.get("MUSTER_SOCKET")
    if not path:
        return False
    try:
        import _socket

        s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            s.setblocking(False)
            s.sendto("\n".join(lines).encode("utf-8", "replace"), path)
        finally:
            s.close()
        return True
    except Exception:
        return False  # muster is gone, or busy: nothing of the program's


def trouble(where, error):
    """Tells what went wrong here, the first time."""
    if not told_trouble[0]:
        told_trouble[0] = True
        text = "%s: %s: %s" % (where, type(error).__name__, error)
        tell("torch trouble " + " ".join(text.split())[:390])


def install():
    try:
        if not os.environ.get("MUSTER_SOCKET"):
            return
        version = ".".join(str(n) for n in sys.version_info[:3])
        if sys.version_info < (3, 6):
            tell("torch unsupported Python %s is too old for any torch that is looked at" % version)
            return
        tell("torch python " + version)
        sys.meta_path.insert(0, Waiting())
    except Exception as error:
        trouble("install", error)


class Waiting(object):
    """Finds no module ever. Python asks it at each import, and it looks whether torch.cuda
    has been imported meanwhile: torch imports more after that."""

    def __init__(self):
        self.done = False

    def find_spec(self, name, path=None, target=None):
        if not self.done and "torch.cuda" in sys.modules and "torch.version" in sys.modules:
            try:
                cuda = sys.modules["torch.cuda"]
                initializing = getattr(getattr(cuda, "__spec__", None), "_initializing", False)
                if not initializing:
                    self.done = True
                    imported(cuda)
            except Exception as error:
                self.done = True
                trouble("import of torch", error)
        return None


def imported(cuda):
    version = sys.modules["torch.version"]
    built = getattr(version, "cuda", None) or getattr(version, "hip", None)
    tell("torch imported %s %s" % (getattr(version, "__version__", "?"), built or "none"))
    if built:
        cuda._lazy_call(lambda: begin(cuda))  # called once the program initialises CUDA


def begin(cuda):
    """Starts the thread. Called by torch while it initialises CUDA in this process."""
    try:
        if started[0] == os.getpid():
            return
        started[0] = os.getpid()
        watcher = Watcher(cuda)
        attach(cuda, watcher)
        watcher.start()
    except Exception as error:
        trouble("start", error)


def attach(cuda, watcher):
    """Has torch tell of allocations that fail (torch 2.0)."""
    core = getattr(sys.modules.get("torch"), "_C", None)
    observe = getattr(core, "_cuda_attach_out_of_memory_observer", None)
    if observe is None:
        return
    try:
        observe(watcher.oom)
    except Exception as error:  # allocators of other makes have no such thing
        trouble("out of memory observer", error)


class Watcher(object):
    def __init__(self, cuda):
        import _thread
        import time

        self.cuda = cuda
        self.clock = time.time if not hasattr(time, "monotonic") else time.monotonic
        self.threads = _thread
        self.stopping = _thread.allocate_lock()
        self.stopped = _thread.allocate_lock()
        self.count = None  # of devices
        self.told = {}  # by device: what was told, and when
        self.largest = {}  # by device: of the newest look
        self.look_after = 0.0  # when the largest free blocks may be looked for again
        self.growth = Growth()

    def start(self):
        """Starts the thread beside what module threading knows of, so that a program which
        waits for all of its threads does not wait for this one."""
        import atexit

        self.stopping.acquire()
        self.stopped.acquire()
        pid = os.getpid()

        def end():
            if os.getpid() == pid:  # a fork has no such thread
                self.end()

        self.threads.start_new_thread(self.run, ())
        atexit.register(end)

    def end(self):
        """Ends the thread before Python goes down, with a last look."""
        try:
            self.stopping.release()
            self.stopped.acquire(True, PACE / 2)
        except Exception as error:
            trouble("end", error)

    def run(self):
        try:
            import signal

            # The program's signals are for its own threads.
            theirs = [getattr(signal, name) for name in SIGNALS]
            signal.pthread_sigmask(signal.SIG_BLOCK, theirs)
        except Exception as error:
            trouble("signals", error)
        try:
            ending = False
            while not ending:
                ending = self.stopping.acquire(True, PACE)
                if self.cuda.is_initialized():
                    self.look(self.clock())
        except Exception as error:
            trouble("look", error)
        finally:
            self.stopped.release()

    def look(self, now):
        """Tells what changed."""
        if self.count is None:  # asking can cost a look at the driver
            self.count = min(self.cuda.device_count(), DEVICES)
        stats = {}
        for device in range(self.count):
            found = numbers(self.cuda.memory_stats_as_nested_dict(device))
            if found["reserved"] or found["peak_reserved"] or device in self.told:
                stats[device] = found
        try:
            self.look_for_largest(stats, now)
        except Exception as error:  # other allocators have no snapshots
            self.largest, self.look_after = {}, float("inf")
            trouble("largest free block", error)
        self.tell(stats, now)
        for device, found in stats.items():
            if self.growth.grows(device, found["allocated"], now):
                self.dump("growth")

    def tell(self, stats, now):
        """Tells in one message what is new, as a socket holds few of them."""
        lines = {}
        for device, found in stats.items():
            if device in self.largest:
                found["largest_free"] = self.largest[device]
            line = "torch device %d %s" % (device, words(found))
            before, at = self.told.get(device, ("", 0.0))
            if line != before or now - at >= REPEAT:
                lines[device] = (line, now)
        if lines and tell(*[line for line, _ in lines.values()]):
            self.told.update(lines)

    def look_for_largest(self, stats, now):
        """Walks through the blocks of the pool, where they are few and no history hangs on
        them, and so seldom that it costs nothing."""
        if now < self.look_after:
            return
        if sum(found["blocks"] for found in stats.values()) > BLOCKS or history_is_kept():
            self.largest = {}
            self.look_after = now + SNAPSHOT_PACE
            return
        began = self.clock()
        largest = {device: 0 for device in stats}
        for segment in snapshot(self.cuda):
            free = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
            device = segment["device"]
            if device in largest:
                largest[device] = max([largest[device]] + free)
        self.largest = largest
        self.look_after = now + max(SNAPSHOT_PACE, SNAPSHOT_SHARE * (self.clock() - began))

    def oom(self, device, requested, total, free):
        """Torch calls this when an allocation has failed, before it raises."""
        try:
            found = numbers(self.cuda.memory_stats_as_nested_dict(device))
            tell(
                "torch device %d %s" % (device, words(found)),
                "torch oom %d requested=%d total=%d free=%d" % (device, requested, total, free),
            )
            self.dump("oom")
        except Exception as error:
            trouble("out of memory", error)

    def dump(self, reason):
        """Writes torch's snapshot of its memory, where the job file wants that."""
        prefix = os.environ.get("MUSTER_TORCH_SNAPSHOT")
        count = dumped.get(reason, 0) + 1
        if not prefix or count > DUMPS:
            return
        dumped[reason] = count
        path = "%s.pid-%d.%s-%d.pickle" % (prefix, os.getpid(), reason, count)
        try:
            write(self.cuda, path)
            tell("torch snapshot " + path)
        except Exception as error:
            trouble("snapshot", error)


def numbers(stats):
    """What is told of torch.cuda.memory_stats; what this torch does not have is 0."""

    def of(name, what):
        return int(stats.get(name, {}).get("all", {}).get(what, 0))

    return {
        "allocated": of("allocated_bytes", "current"),
        "reserved": of("reserved_bytes", "current"),
        "inactive": of("inactive_split_bytes", "current"),
        "peak_allocated": of("allocated_bytes", "peak"),
        "peak_reserved": of("reserved_bytes", "peak"),
        "retries": int(stats.get("num_alloc_retries", 0)),
        "ooms": int(stats.get("num_ooms", 0)),
        "blocks": of("active", "current") + of("inactive_split", "current") + of("segment", "current"),
    }


def words(found):
    return " ".join("%s=%d" % (name, n) for name, n in sorted(found.items()) if name != "blocks")


def history_is_kept():
    """Whether a snapshot would carry a history of allocations, which can be gigabytes."""
    core = getattr(sys.modules.get("torch"), "_C", None)
    enabled = getattr(core, "_cuda_isHistoryEnabled", None)
    return enabled is not None and enabled()


def snapshot(cuda):
    try:
        return cuda.memory_snapshot(include_traces=False)
    except TypeError:  # up to torch 2.9 or so it takes no such word
        return cuda.memory_snapshot()


def write(cuda, path):
    dump = getattr(cuda.memory, "_dump_snapshot", None)
    if dump is not None:
        dump(path)
        return
    import pickle

    with open(path, "wb") as f:
        pickle.dump({"segments": cuda.memory_snapshot(), "device_traces": []}, f)


class Growth(object):
    """Finds memory that creeps up: the least that was allocated in a window has grown over
    so many windows in a row, by enough that it is no noise. What a step allocates and frees
    is within a window."""

    WINDOW = 600.0  # seconds
    WINDOWS = 4
    LEAST = 256 << 20  # bytes in all

    def __init__(self):
        self.windows = {}  # by device: [begin, least], oldest first

    def grows(self, device, allocated, now):
        all_ = self.windows.setdefault(device, [[now, allocated]])
        if now - all_[-1][0] < self.WINDOW:
            all_[-1][1] = min(all_[-1][1], allocated)
            return False
        floors = [least for _, least in all_[1:]]  # the first one is the program's beginning
        all_.append([now, allocated])
        del all_[: -(self.WINDOWS + 2)]
        floors = floors[-self.WINDOWS :]
        rising = all(a < b for a, b in zip(floors, floors[1:]))
        if len(floors) < self.WINDOWS or not rising or floors[-1] - floors[0] < self.LEAST:
            return False
        self.windows[device] = [[now, allocated]]  # anew, so that it is told once
        return True
