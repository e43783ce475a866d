"""The plan of a server on Gaudi 2 cards: `inkling plan device=gaudi`.

What it is not: the rules. Refusals are those at start (`refusals.py`), memory that of the doctor
(`card.py`), graphs those of `inkling buckets`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from inkling_core.config import PRESETS
from inkling_core.doctor.matrix import read_matrix
from inkling_core.plan.cpu import checkpoint_word, weight_bytes
from inkling_core.plan.record import (
    Plan,
    Planner,
    Problem,
    StepTime,
    Way,
    length_of,
    ranks_of,
    shared_problems,
)
from inkling_core.plan.settings import PlanSettings
from inkling_core.weights.info import GIB
from inkling_core.weights.rules import usable_tp
from inkling_hpu.buckets.command import report
from inkling_hpu.buckets.generate import generate
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.kv_cache import page_bytes
from inkling_hpu.plan.card import CardMemory
from inkling_hpu.plan.latency import StepModel
from inkling_hpu.refusals import BLOCK_SIZES, CHECKS, Deployment, usable_sizes
from inkling_hpu.switches import DEFAULTS

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

DTYPE = "bfloat16"
TIMED = ("inkling_small", 8)  # what the latency model was fitted to: model, tensor parallel
NOT_MEASURED = "nothing here was measured on a Gaudi; activation peaks least of all"
MASK_AND_BLOCK = 1.05  # masks: one, and a pad block beside it at the smallest utilization
LAUNCH = (  # beside what depends on the plan; deploy/gaudi/compose.yaml starts the same
    "--enable-prefix-caching --no-async-scheduling --reasoning-parser inkling_py "
    "--tool-call-parser inkling_py --enable-auto-tool-choice"
)


def sizes(config: InklingConfig) -> list[int]:
    """See `Planner`."""
    return usable_sizes(config, Deployment(torch.bfloat16, BLOCK_SIZES[-1], 1))


def memory_bytes(asked: PlanSettings) -> int:
    """Of a card."""
    return int((asked.memory_gib or _card_gib()) * GIB)


@lru_cache(maxsize=1)
def _card_gib() -> float:
    return read_matrix("inkling_hpu").data["card"]["memory_gib"]


def problems(asked: PlanSettings, config: InklingConfig) -> list[Problem]:
    """See `Planner`."""
    usable = sizes(config)
    ranks = ranks_of(asked, usable or usable_tp(config))
    found = [*_refused(asked, config, ranks, usable), *shared_problems(asked, ranks)]
    found += _too_heavy(asked, config, ranks)
    return found or _too_large(asked, config, ranks)


def _refused(
    asked: PlanSettings, config: InklingConfig, ranks: int, usable: list[int]
) -> list[Problem]:
    deployment = _deployment(asked, config, ranks)
    ways = {
        "block_size": Way("block_size", up=False),
        "max_model_len": Way("max_model_len", up=False),
        # some model cannot be split at all
        "tensor_parallel": Way("tensor_parallel" if usable else "model", up=False),
    }
    texts = {about: "; ".join(CHECKS[about](config, deployment)) for about in ways}
    return [Problem(about, text, (ways[about],)) for about, text in texts.items() if text]


def _too_heavy(asked: PlanSettings, config: InklingConfig, ranks: int) -> list[Problem]:
    weights, total = weight_bytes(config, DTYPE).get(ranks, 0), memory_bytes(asked)
    if weights + MASK_AND_BLOCK * DEFAULTS.mask_bytes < total:
        return []
    text = (
        f"{weights / GIB:.2f} GiB of weights and {DEFAULTS.mask_bytes / GIB:.2f} GiB of prefill "
        f"mask on a card of {total / GIB:.2f} GiB"
    )
    return [Problem("weights", text, (_more_cards(asked), Way("memory_gib", up=True)), 1)]


def _too_large(asked: PlanSettings, config: InklingConfig, ranks: int) -> list[Problem]:
    """Where memory decides the pool, room comes first: a pool that was cut for it may be too small.
    Where blocks were asked for, the other way round."""
    card = _card(asked, config, ranks)
    override = asked.num_gpu_blocks_override is not None
    size = "num_gpu_blocks_override" if override else "gpu_memory_utilization"
    more = (_more_cards(asked), Way("memory_gib", up=True))
    found = []
    pool = _deployment(asked, config, ranks, num_blocks=card.blocks)
    if texts := list(CHECKS["pool"](config, pool)):
        ways = (Way("max_model_len", up=False), Way(size, up=True), *more)
        found.append(Problem("pool", texts[0].partition(": ")[0], ways, 2 if override else 3))
    if card.spare < 0:
        text = (
            f"{card.blocks} blocks, {card.graphs / GIB:.2f} GiB for graphs and "
            f"{card.mask / GIB:.2f} GiB for a prefill mask are {-card.spare / GIB:.2f} GiB more "
            "than the card has beside the weights"
        )
        ways = (Way(size, up=False), *more)
        found.append(Problem("room", text, ways, 3 if override else 2))
    return sorted(found, key=lambda problem: problem.stage)


def _more_cards(asked: PlanSettings) -> Way:
    return Way("cards" if asked.tensor_parallel is None else "tensor_parallel", up=True)


def plan(asked: PlanSettings, config: InklingConfig) -> Plan:
    """See `Planner`."""
    ranks, length = ranks_of(asked, sizes(config)), length_of(asked, config)
    card = _card(asked, config, ranks)
    steps = _steps(asked, config, ranks)
    return Plan(
        device="gaudi",
        model=asked.model,
        ranks=ranks,
        servers=asked.cards // ranks,
        idle_cards=asked.cards % ranks,
        parts=card.parts(),
        card_bytes=card.total,
        blocks=card.blocks,
        block_size=asked.block_size,
        max_model_len=length,
        max_num_seqs=asked.max_num_seqs,
        buckets=_buckets(asked, length),
        steps=steps,
        notes=(NOT_MEASURED, *(_model_notes() if steps else (_untimed(asked, ranks),))),
        command=_command(asked, ranks, length),
    )


def _card(asked: PlanSettings, config: InklingConfig, ranks: int) -> CardMemory:
    return CardMemory(
        total=memory_bytes(asked),
        weights=weight_bytes(config, DTYPE)[ranks],
        page=page_bytes(config, ranks, asked.block_size, torch.bfloat16),
        layers=config.num_hidden_layers,
        mask=DEFAULTS.mask_bytes,
        utilization=asked.gpu_memory_utilization,
        graph_share=asked.graph_reserved_mem,
        override=asked.num_gpu_blocks_override,
    )


def _deployment(
    asked: PlanSettings, config: InklingConfig, ranks: int, num_blocks: int | None = None
) -> Deployment:
    return Deployment(
        torch.bfloat16,
        asked.block_size,
        length_of(asked, config),
        tp_size=ranks,
        num_blocks=num_blocks,
    )


def _buckets(asked: PlanSettings, length: int) -> dict[str, Any]:
    profile = Profile(
        length,
        asked.block_size,
        max_num_seqs=asked.max_num_seqs,
        chunk=asked.max_num_batched_tokens,
    )
    return report(profile, generate(profile), asked.seconds_per_graph)


def _steps(asked: PlanSettings, config: InklingConfig, ranks: int) -> tuple[StepTime, ...]:
    """At 1, 2, 4 ... streams and at the most that decode together."""
    if (config, ranks) != (PRESETS[TIMED[0]], TIMED[1]):
        return ()
    model, most = StepModel.fitted(), asked.max_num_seqs
    counts = [1 << n for n in range(most.bit_length()) if 1 << n < most]
    return tuple(StepTime(n, model.ms(n), *model.interval(n)) for n in [*counts, most])


@lru_cache(maxsize=1)
def _model_notes() -> tuple[str, ...]:
    """How good the latency model is, in its own figures."""
    model = StepModel.fitted()
    errors = ", ".join(f"{ms:+.1f} at {streams}" for streams, ms in model.left_out().items())
    slopes = ", ".join(f"{ms:.1f} from {a} to {b}" for a, b, ms in model.slopes())
    return (
        f"step time: {model.t0:.1f} ms + {model.c:.2f} ms a stream, two parameters fitted to four "
        "published figures of another port of this model, contexts unknown; interval 95 %",
        f"left out, a figure is missed by {errors} streams (ms)",
        f"the term that fails is the constant {model.c:.2f} ms a stream: measured {slopes} streams",
    )


def _untimed(asked: PlanSettings, ranks: int) -> str:
    return (
        f"step time: not known for {asked.model} at tensor parallel {ranks}; figures were "
        f"published for {TIMED[0]} at {TIMED[1]} only"
    )


def _command(asked: PlanSettings, ranks: int, length: int) -> str:
    """vLLM's own command with this plan's arguments."""
    values = {
        "--model": checkpoint_word(asked.model),
        "--dtype": DTYPE,
        "--tensor-parallel-size": ranks,
        "--max-model-len": length,
        "--max-num-seqs": asked.max_num_seqs,
        "--max-num-batched-tokens": asked.max_num_batched_tokens,
        "--block-size": asked.block_size,
    }
    if asked.num_gpu_blocks_override is None:
        values["--gpu-memory-utilization"] = asked.gpu_memory_utilization
    else:
        values["--num-gpu-blocks-override"] = asked.num_gpu_blocks_override
    arguments = " ".join(f"{name} {value}" for name, value in values.items())
    return (
        f"PT_HPU_LAZY_MODE=1 VLLM_GRAPH_RESERVED_MEM={asked.graph_reserved_mem} "
        f"python -m vllm.entrypoints.openai.api_server {arguments} {LAUNCH}"
    )


GAUDI = Planner(problems, plan, sizes, memory_bytes, BLOCK_SIZES)
