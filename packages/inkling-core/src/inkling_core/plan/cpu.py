"""The plan of `inkling serve` on a CPU.

    blocks = kv_cache_mib // (page of a layer * layers)       a page: keys, values, a conv row
    memory = weights + pool of each process, and what is left for the engine and the system

What it is not: the rules; the server refuses the same with the same functions (serving.server.fit).
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from inkling_core.plan.record import (
    Part,
    Plan,
    Planner,
    Problem,
    Way,
    length_of,
    ranks_of,
    shared_problems,
)
from inkling_core.plan.settings import PlanSettings
from inkling_core.serving.launch import CPU as ON_CPU
from inkling_core.serving.plan import check_pool, page_layout, pool_blocks
from inkling_core.serving.settings import ServeSettings
from inkling_core.weights.errors import ShardingError
from inkling_core.weights.info import GIB, checkpoint_info
from inkling_core.weights.rules import check_tp, usable_tp

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig
    from inkling_core.serving.pages import PageLayout

MIB = 2**20
NOT_KNOWN = "step time: nobody has measured this on a CPU that can be named here"


@lru_cache(maxsize=8)
def weight_bytes(config: InklingConfig, dtype: str) -> dict[int, int]:
    """Tensor-parallel size -> bytes of weights that each rank holds, served in `dtype`."""
    return checkpoint_info(config.replace(dtype=dtype)).card_bytes


def memory_bytes(asked: PlanSettings) -> int:
    """Of the machine: as it was said, or what is free here. ValueError where that is not known."""
    if asked.memory_gib is not None:
        return int(asked.memory_gib * GIB)
    from inkling_core.doctor.fit import available_memory
    from inkling_core.doctor.subject import Machine

    free = available_memory(Machine())
    if free is None:
        raise ValueError("memory_gib=null: the free memory cannot be read here; give memory_gib=")
    return free


def problems(asked: PlanSettings, config: InklingConfig) -> list[Problem]:
    """See `Planner`."""
    ranks, length = ranks_of(asked, usable_tp(config)), length_of(asked, config)
    found = shared_problems(asked, ranks)
    try:
        check_tp(config, 0, ranks)
    except ShardingError as error:
        text = f"tensor_parallel={ranks}: {'; '.join(error.problems)}"
        found.insert(0, Problem("ranks", text, (Way("tensor_parallel", up=False),)))
    limit = config.max_position_embeddings
    if length > limit:
        text = f"max_model_len={length} is beyond the checkpoint's {limit}"
        found.append(Problem("length", text, (Way("max_model_len", up=False),)))
    return found or _too_large(asked, config, ranks, length)


def _too_large(
    asked: PlanSettings, config: InklingConfig, ranks: int, length: int
) -> list[Problem]:
    found = []
    blocks = pool_blocks(
        asked.kv_cache_mib, _layout(asked, config, ranks), config.num_hidden_layers
    )
    try:
        check_pool(blocks, asked.block_size, length)
    except ValueError as error:
        ways = (Way("kv_cache_mib", up=True), Way("max_model_len", up=False))
        found.append(Problem("pool", str(error).partition(": ")[0], ways, 1))
    weights = weight_bytes(config, _dtype(asked, config))[ranks]
    used, share = weights + asked.kv_cache_mib * MIB, memory_bytes(asked) // asked.cards
    if used > share:
        text = (
            f"{used / GIB:.2f} GiB of weights and pool in each process, of which {asked.cards} "
            f"share {memory_bytes(asked) / GIB:.2f} GiB"
        )
        ways = (Way("kv_cache_mib", up=False), Way("memory_gib", up=True))
        found.append(Problem("memory", text, ways, 2))
    return found


def plan(asked: PlanSettings, config: InklingConfig) -> Plan:
    """See `Planner`."""
    ranks, length = ranks_of(asked, usable_tp(config)), length_of(asked, config)
    layout, layers = _layout(asked, config, ranks), config.num_hidden_layers
    blocks = pool_blocks(asked.kv_cache_mib, layout, layers)
    keys = blocks * layers * layout.block_size * layout.slot_bytes
    rows = blocks * layers * layout.page_bytes - keys
    weights, pool = weight_bytes(config, _dtype(asked, config))[ranks], asked.kv_cache_mib * MIB
    share = memory_bytes(asked) // asked.cards
    return Plan(
        device="cpu",
        model=asked.model,
        ranks=ranks,
        servers=asked.cards // ranks,
        idle_cards=asked.cards % ranks,
        parts=(
            Part("weights", weights),
            Part("keys and values", keys),
            Part("conv rows", rows),
            Part("pool, less than a block", pool - keys - rows),
            Part("left for the engine", share - weights - pool),
        ),
        card_bytes=share,
        blocks=blocks,
        block_size=asked.block_size,
        max_model_len=length,
        max_num_seqs=asked.max_num_seqs,
        buckets=None,
        steps=(),
        notes=(NOT_KNOWN,),
        command=_command(asked, ranks, length),
    )


def _dtype(asked: PlanSettings, config: InklingConfig) -> str:
    return (ON_CPU.embedded_dtype if asked.model == "nano" else None) or config.dtype


def _layout(asked: PlanSettings, config: InklingConfig, ranks: int) -> PageLayout:
    dtype = getattr(torch, _dtype(asked, config))
    return page_layout(config, ranks, asked.block_size, dtype, dtype)


def _command(asked: PlanSettings, ranks: int, length: int) -> str:
    """`inkling serve` with what differs from its defaults; DIR where no folder was named."""
    values = {
        "checkpoint": None if asked.model == "nano" else checkpoint_word(asked.model),
        "max_model_len": length,
        "max_num_seqs": asked.max_num_seqs,
        "max_num_batched_tokens": asked.max_num_batched_tokens,
        "block_size": asked.block_size,
        "kv_cache_mib": asked.kv_cache_mib,
        "tensor_parallel": ranks,
    }
    defaults = ServeSettings()
    given = [
        f"{name}={value}" for name, value in values.items() if value != getattr(defaults, name)
    ]
    return " ".join(["inkling", "serve", *given])


def checkpoint_word(model: str) -> str:
    """The folder, as a word of a command line; DIR where a model was named and no folder."""
    return shlex.quote(model) if Path(model).is_dir() else "DIR"


CPU = Planner(problems, plan, usable_tp, memory_bytes)
