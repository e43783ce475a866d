"""Settings of `inkling bench ops` and `bench masks`, by `inkling_core.cli.settings`' convention."""

from __future__ import annotations

from dataclasses import dataclass

from inkling_core.cli.settings import check_at_least, check_choice

BACKENDS = ("hpu",)
FORMATS = ("table", "json")


@dataclass(frozen=True)
class BenchOpsSettings:
    """Settings of `inkling bench ops`.

    backend: whose decoder is counted; hpu is the one that the Gaudi plug-in serves.
    model: preset (inkling_small, inkling, nano), folder in the published format, or a config.json;
    no weights are read.
    tp: tensor-parallel size; the step of one rank is counted.
    streams: requests that decode together.
    context: length of each of them in tokens, the new one included.
    dtype: arithmetic of the model.
    single_reduce: routed and shared experts are summed on each rank and reduced together
    (INKLING_MOE_SINGLE_REDUCE).
    step_hoist: what depends on the step alone is computed once (INKLING_STEP_HOIST).
    conv_hoist: conv rows of all layers are gathered, weighed and written once (INKLING_CONV_HOIST).
    local_sdpa: local layers run masked SDPA over a rectangle of blocks (INKLING_LOCAL_SDPA).
    shared_in_kernel: shared experts run in the expert kernel (INKLING_SHARED_IN_KERNEL).
    compare: also count with all switches off, then with one more on in each column.
    detail: also list the ops of each part by name.
    format: table or json.
    """

    backend: str = "hpu"
    model: str = "inkling_small"
    tp: int = 8
    streams: int = 1
    context: int = 8192
    dtype: str = "bfloat16"
    single_reduce: bool = True
    step_hoist: bool = True
    conv_hoist: bool = True
    local_sdpa: bool = True
    shared_in_kernel: bool = True
    compare: bool = True
    detail: bool = False
    format: str = "table"

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)
        check_choice("dtype", self.dtype, ("bfloat16", "float32"))
        check_choice("format", self.format, FORMATS)
        for name in ("tp", "streams", "context"):
            check_at_least(name, getattr(self, name), 1)


@dataclass(frozen=True)
class BenchMasksSettings:
    """Settings of `inkling bench masks`.

    model: as `inkling bench ops` takes it.
    tp: tensor-parallel size; the chunk of one rank is counted.
    chunk: new tokens of the prefill step.
    context: tokens processed before; several make a row each.
    max_model_len: longest request, by which the buckets are those of `inkling buckets`.
    dtype: arithmetic of the model.
    format: table or json.
    """

    model: str = "inkling_small"
    tp: int = 8
    chunk: int = 2048
    context: tuple[int, ...] = (0, 32_768, 131_072, 256_000)
    max_model_len: int = 262_144
    dtype: str = "bfloat16"
    format: str = "table"

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, ("bfloat16", "float32"))
        check_choice("format", self.format, FORMATS)
        check_at_least("tp", self.tp, 1)
        check_at_least("chunk", self.chunk, 2)
        if not self.context or min(self.context) < 0:
            raise ValueError(f"context={list(self.context)} must name lengths of 0 or more")
        longest = max(self.context) + self.chunk
        if longest > self.max_model_len:
            raise ValueError(
                f"a context of {max(self.context)} and a chunk of {self.chunk} are {longest} "
                f"tokens, max_model_len={self.max_model_len}: raise it or shorten the context"
            )
