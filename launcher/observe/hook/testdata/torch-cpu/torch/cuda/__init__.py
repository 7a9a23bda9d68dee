def _lazy_call(callable, **kwargs):
    raise AssertionError("Torch not compiled with CUDA enabled")


def is_initialized():
    return False
