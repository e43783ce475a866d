"""One prefill chunk of the decoder that the plug-in serves, and the masks that its attention gets.

    masks       every mask that is handed to an attention kernel; one that layers share, or that is
                kept for the step, counts once
    ops, bytes  by the rule of `rule.py` and `traffic.py`

Everything lies on the meta device, as in decode_step.py. The context gets the bucket that
`inkling buckets` lists for it, padding included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from inkling_core.config import InklingConfig
from inkling_core.layers.context import Caches
from inkling_hpu.buckets.coverage import choose
from inkling_hpu.buckets.generate import generate
from inkling_hpu.buckets.profile import BLOCK, Profile
from inkling_hpu.builders import build_prefill, reach_of, sure_far_blocks
from inkling_hpu.conv_rows import HpuConvStore
from inkling_hpu.counter.decode_step import META
from inkling_hpu.counter.layer_kinds import LayerKinds
from inkling_hpu.counter.mode import OpCounter
from inkling_hpu.counter.parts import place_of_caller
from inkling_hpu.counter.rule import op_name
from inkling_hpu.kv_cache import HpuKVCache
from inkling_hpu.serving_model import build_decoder
from inkling_hpu.switches import Switches

ATTENTION = ("inkling_hpu::fsdpa", "inkling_hpu::fsdpa_lse")
PARTS = ("mask", "index math", "attention", "merge")


class MaskCounter(OpCounter):
    """Also keeps the masks of attention calls. `masks`: each once, by identity; `calls`: the
    numbers of keys of the calls."""

    def __init__(self, kinds: LayerKinds) -> None:
        super().__init__(lambda: place_of_caller(kinds))
        self.masks: dict[int, Tensor] = {}
        self.calls: list[int] = []

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if op_name(func) in ATTENTION:
            self.calls.append(args[1].shape[2])
            if args[3] is not None:
                self.masks[id(args[3])] = args[3]  # held, so that no other gets its id
        return super().__torch_dispatch__(func, types, args, kwargs)


@dataclass(frozen=True)
class ChunkCount:
    """Of one chunk: bytes of all masks and of the largest one; attention calls; ops of bias, masks,
    index math, attention and merging, and the bytes that the ones that make masks move."""

    context: int
    mask_bytes: int
    largest_mask: int
    calls: int
    ops: int
    moved: int
    bucket: tuple[int, int, int] = field(default=(0, 0, 0))


def count_chunk(
    config: InklingConfig,
    dtype: torch.dtype,
    tp: int,
    profile: Profile,
    context: int,
    switches: Switches,
) -> ChunkCount:
    """Counts the prefill of `profile.chunk` tokens after `context` others, of rank 0.

    Raises ValueError where `tp` does not divide the model.
    """
    decoder = build_decoder(config, dtype, 0, tp, switches)
    decoder.load_weights(list(decoder.named_parameters()))  # as after a load: experts are packed
    listed = generate(profile).prefill
    bucket = choose(listed, (1, profile.chunk, -(-context // BLOCK)))
    assert bucket is not None  # the list covers every shape of the profile
    reach = reach_of(max(config.rel_extent, config.sliding_window), BLOCK)
    needed = -(-(context + profile.chunk) // BLOCK)
    caches = Caches(
        HpuKVCache.allocate(config, needed + 1, BLOCK, dtype, decoder.tp, META),
        HpuConvStore.of(decoder, needed + 1, switches, META),
    )
    step = build_prefill(
        [profile.chunk],
        [context],
        [range(1, 1 + needed)],
        num_rows=1,
        row_length=bucket[1],
        num_context_blocks=bucket[2],
        block_size=BLOCK,
        pad_block=needed + 1,
        num_far_blocks=sure_far_blocks(listed, bucket, reach, BLOCK),
        reach=reach,
        switches=switches,
        device=META,
    )
    ids_T = torch.empty(bucket[1], dtype=torch.int64, device=META)
    with LayerKinds(decoder) as kinds, MaskCounter(kinds) as counter:
        decoder(ids_T, step, caches)
    parts = {part: sums for (part,), sums in counter.tally.by("part").items()}
    masks = [mask.nbytes for mask in counter.masks.values()]
    return ChunkCount(
        context,
        sum(masks),
        max(masks),
        len(counter.calls),
        sum(parts[part].ops for part in PARTS if part in parts),
        parts["mask"].bytes,
        bucket,
    )
