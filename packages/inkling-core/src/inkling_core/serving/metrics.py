"""Gauges of our own on a server's /metrics page, beside vLLM's.

    inkling:conv_rows        conv rows of one rank, one per block of the pool
    inkling:conv_row_bytes   their bytes, all layers of one rank
    inkling:warmup_seconds   how long warm-up took (on a Gaudi)
    inkling:warmup_graphs    shapes that warm-up ran, each a graph (on a Gaudi)

A row belongs to its block, so rows in use = inkling:conv_rows * vllm:kv_cache_usage_perc.

Workers set them; another process serves the page. prometheus_client carries values from process to
process through files in the folder that PROMETHEUS_MULTIPROC_DIR names, which has to stand in the
environment before that library is imported, and has to be empty at the start (`shared_folder` sees
to both). Without the folder the page lacks them and nothing else changes.

What it is not: vLLM's own metrics, or a server for them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
GAUGES = {
    "inkling:conv_rows": "Conv rows of one rank, one per block of the KV pool.",
    "inkling:conv_row_bytes": "Bytes of the conv rows, all layers of one rank.",
    "inkling:warmup_seconds": "How long warm-up took.",
    "inkling:warmup_graphs": "Shapes that warm-up ran, each a graph.",
}


@contextmanager
def shared_folder(environ: MutableMapping[str, str]) -> Iterator[None]:
    """A folder for values of all processes, for as long as the server runs; one that `environ`
    names already stays, and its owner empties it."""
    if environ.get(FOLDER):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="inkling-metrics-") as folder:
        environ[FOLDER] = folder
        try:
            yield
        finally:
            del environ[FOLDER]


def set_gauge(name: str, value: float) -> None:
    """Sets one of `GAUGES`. KeyError for another name."""
    _gauge(name).set(value)


def report_rows(rows: Sequence[Tensor]) -> None:
    """rows: `[blocks, J, width]` tensors, as a conv store holds them; on a Gaudi there are two more
    rows than blocks, for padding and of zeros."""
    set_gauge("inkling:conv_rows", len(rows[0]))
    set_gauge("inkling:conv_row_bytes", sum(one.numel() * one.element_size() for one in rows))


@cache
def _gauge(name: str):
    from prometheus_client import Gauge

    # Ranks are alike, and a rank that ended must not count: the largest value is any rank's.
    return Gauge(name, GAUGES[name], multiprocess_mode="max")
