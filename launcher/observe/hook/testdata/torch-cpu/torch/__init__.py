"""Stands in for a PyTorch that is built without CUDA."""
from . import version
from . import cuda
from . import autograd
