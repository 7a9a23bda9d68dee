"""Stands in for PyTorch 2.5 with two GPUs."""
from . import version
from .version import __version__


class _C(object):
    observers = []
    history = False

    @classmethod
    def _cuda_attach_out_of_memory_observer(cls, observer):
        cls.observers.append(observer)

    @classmethod
    def _cuda_isHistoryEnabled(cls):
        return cls.history


from . import cuda
from . import autograd  # the real one imports much after torch.cuda, too
