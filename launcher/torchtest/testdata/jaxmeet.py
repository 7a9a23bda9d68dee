"""Processes of JAX that meet as jax.distributed.initialize() finds them, and sum."""

import os

import jax

jax.distributed.initialize()

from jax.experimental import multihost_utils  # noqa: E402: it looks at the processes
import jax.numpy as jnp  # noqa: E402

parts = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1]))
print(f"process {jax.process_index()} of {jax.process_count()}, rank {os.environ['RANK']}, sum {int(parts.sum())}", flush=True)
