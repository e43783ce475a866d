"""vllm-gaudi's runner in miniature: how it cuts a scheduled step into padded forwards.

What it follows of vllm-gaudi 0.26.0: a step's prefills run first, one by one in scheduling order
(prompts without context may be merged), then all decodes in one batch; a prefill sees its context
as whole blocks in front of the new tokens, padded with the pad block; a decode sees one flat list
of blocks, request after request; every size is rounded up to a bucket; padding tokens write the
pad block, which is the last one.

What it is not: a scheduler (`inkling_core.conv_state.conformance.MiniEngine`) or the model. Caches
start spoiled: keys and values hold large finite numbers wherever nothing was written, conv rows
hold NaN, and a block that changes hands is spoiled again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from inkling_core.conv_state.conformance import MiniEngine, Request, Scheduled, TokenSequence
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_hpu.builders import build_decode, build_prefill, reach_of, sure_far_blocks
from inkling_hpu.conv_rows import HpuConvStore
from inkling_hpu.kv_cache import HpuKVCache
from inkling_hpu.step import HpuStep, PrefillKeys
from inkling_hpu.switches import DEFAULTS, Switches

NAN = float("nan")
GARBAGE = 37.0


def bucket(count: int) -> int:
    """The next power of two, and one more where it is one already: padding nearly always."""
    return 1 << count.bit_length()


class GaudiRunner:
    """Runs scheduled parts on a decoder with the HPU back end; returns their logits.

    num_blocks: pool size, null block included; the pad block is block `num_blocks`.
    merge: most prompts without context that share a prefill.
    """

    def __init__(
        self,
        decoder: Decoder,
        block_size: int,
        num_blocks: int,
        switches: Switches = DEFAULTS,
        merge: int = 1,
    ) -> None:
        config = decoder.config
        self.decoder, self.block_size, self.pad_block = decoder, block_size, num_blocks
        self.switches, self.merge = switches, merge
        self.reach = reach_of(max(config.rel_extent, config.sliding_window), block_size)
        self.kv = HpuKVCache.allocate(config, num_blocks, block_size, decoder.dtype, decoder.tp)
        self.conv = HpuConvStore.of(decoder, self.pad_block, switches)
        self.caches = Caches(self.kv, self.conv)
        self.spoil(range(self.pad_block + 1))
        self.forwards: list[str] = []
        self.far_blocks: list[int] = []  # of each prefill

    def spoil(self, blocks: Iterable[int]) -> None:
        """What a block's new owner finds: nothing that it may use."""
        index = torch.tensor(list(blocks), dtype=torch.int64)
        for paged in [*self.kv.keys, *self.kv.values]:
            paged[index] = GARBAGE
        for rows in self.conv.rows:
            rows[index] = NAN

    def run(self, parts: Sequence[Scheduled], decoding: Sequence[bool]) -> list[Tensor]:
        """One engine step: `[length, V]` logits of each part, in the order given.

        decoding: which parts continue a request whose prompt is done.
        """
        logits: dict[int, Tensor] = {}
        prompts = [i for i, done in enumerate(decoding) if not done]
        while prompts:
            group = self._mergeable(parts, prompts)
            prompts = prompts[len(group) :]
            logits.update(zip(group, self.prefill([parts[i] for i in group]), strict=True))
        decodes = [i for i, done in enumerate(decoding) if done]
        if decodes:
            logits.update(zip(decodes, self.decode([parts[i] for i in decodes]), strict=True))
        return [logits[i] for i in range(len(parts))]

    def prefill(self, parts: Sequence[Scheduled]) -> list[Tensor]:
        """One padded prefill."""
        row_length, size = bucket(max(part.length for part in parts)), self.block_size
        most = max(-(-part.context // size) for part in parts)
        shape = (len(parts), row_length, bucket(most) if most else 0)
        ladder = [(*shape[:2], 1 << n) for n in range(10)]
        step = build_prefill(
            [part.length for part in parts],
            [part.context for part in parts],
            [part.table for part in parts],
            num_rows=len(parts),
            row_length=row_length,
            num_context_blocks=shape[-1],
            block_size=size,
            pad_block=self.pad_block,
            num_far_blocks=sure_far_blocks(ladder, shape, self.reach, size),
            reach=self.reach,
            switches=self.switches,
        )
        assert isinstance(step.keys, PrefillKeys)
        self.forwards.append(f"prefill {len(parts)}x{row_length}")
        self.far_blocks.append(step.keys.far_QF.shape[1])
        return self._forward(parts, step)

    def decode(self, parts: Sequence[Scheduled]) -> list[Tensor]:
        """One padded decode batch."""
        listed = sum(part.context // self.block_size + 1 for part in parts)
        step = build_decode(
            [part.context for part in parts],
            [part.table for part in parts],
            num_rows=bucket(len(parts)),
            num_blocks=bucket(listed),
            window=self.decoder.config.sliding_window,
            block_size=self.block_size,
            pad_block=self.pad_block,
            switches=self.switches,
        )
        self.forwards.append(f"decode {len(parts)}")
        return self._forward(parts, step)

    def _mergeable(self, parts: Sequence[Scheduled], prompts: list[int]) -> list[int]:
        group = prompts[:1]
        for i in prompts[1 : self.merge]:
            if parts[group[0]].context or parts[i].context:
                break
            group.append(i)
        return group

    def _forward(self, parts: Sequence[Scheduled], step: HpuStep) -> list[Tensor]:
        ids_QS = torch.full((step.num_rows, step.row_length), -1)  # what vllm-gaudi pads with
        for q, part in enumerate(parts):
            new = part.sequence.tokens[part.context : part.context + part.length]
            ids_QS[q, : part.length] = torch.tensor(new)
        logits_TV = self.decoder.logits(self.decoder(ids_QS.flatten(), step, self.caches))
        assert torch.isfinite(logits_TV).all(), "padding rows stay finite, or they spoil caches"
        logits_QSV = logits_TV.unflatten(0, (step.num_rows, -1))
        return [logits_QSV[q, : part.length] for q, part in enumerate(parts)]


def serve(
    runner: GaudiRunner, engine: MiniEngine, requests: Sequence[Request]
) -> dict[TokenSequence, Tensor]:
    """Serves all requests to the end; `[length, V]` logits of every position of each, the ones
    that a prefix hit left out as NaN."""
    logits = {
        r.sequence: torch.full((len(r.sequence), runner.decoder.config.unpadded_vocab_size), NAN)
        for r in requests
    }
    for request in requests:
        engine.add(request)
    prompts = {request.sequence: request.prompt for request in requests}
    running: dict[TokenSequence, int] = {}
    while parts := engine.step():
        runner.spoil(_newly_owned(parts, runner.block_size))
        # A resumed request is prefilled, its own answer included (with vllm-gaudi's fault mended).
        decoding = [
            running.get(part.sequence) == part.context >= prompts[part.sequence] for part in parts
        ]
        for part, rows in zip(parts, runner.run(parts, decoding), strict=True):
            logits[part.sequence][part.context : part.context + part.length] = rows
        running = {r.sequence: r.computed for r in engine.running}
    return logits


def _newly_owned(parts: Sequence[Scheduled], block_size: int) -> set[int]:
    """Blocks that a part writes from their first position on: none of them holds anything that
    anybody may read."""
    fresh: set[int] = set()
    for part in parts:
        first = -(-part.context // block_size)
        last = (part.context + part.length - 1) // block_size
        fresh.update(part.table[first : last + 1])
    return fresh
