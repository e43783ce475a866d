"""Answers to the core's parity cases by the Gaudi ops, which take rectangular steps.

Not a comparison (`inkling_core.parity`). Ragged cases are asked request by request, each as one row
of a step made by the same builders as a served one; the model runs over this package's caches,
a prefill for each chunk of several tokens and a decode step for each single one. Slots that no
request wrote hold large finite numbers here, and there is a pad block, as on the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inkling_core.layers.context import Caches
from inkling_core.ops import QkvrWeights
from inkling_core.parity.calls import OpsRunner, tiny_decoder
from inkling_core.parity.cases import OpCase
from inkling_hpu.backend import HPU
from inkling_hpu.builders import build_decode, build_prefill
from inkling_hpu.conv_rows import HpuConvStore
from inkling_hpu.kv_cache import HpuKVCache
from inkling_hpu.step import HpuStep
from inkling_hpu.switches import DEFAULTS

GARBAGE = 37.0


class HpuRunner(OpsRunner):
    """Calls `inkling_hpu.ops`; see the module."""

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__(HPU, device)

    def call(self, op: str, arguments: Mapping[str, Any]) -> Tensor | tuple[Tensor, ...]:
        """One op; the three that know requests are called once for each."""
        if op == "rel_attention":
            return self._attention(**arguments)
        if op not in ("short_conv", "qkvr_prep"):
            return super().call(op, arguments)
        starts = arguments["starts"]
        parts: list[Any] = [  # of tensors, or of tuples of them
            super(HpuRunner, self).call(op, _of_request(arguments, q, start, end))
            for q, (start, end) in enumerate(itertools.pairwise(starts))
        ]
        if isinstance(parts[0], tuple):
            return tuple(torch.cat(column) for column in zip(*parts, strict=True))
        return torch.cat(parts)

    def _attention(
        self,
        q_TNH: Tensor,
        rel_TNR: Tensor,
        keys_PLGH: Tensor,
        values_PLGH: Tensor,
        step: Mapping[str, Any],
        window: int | None,
    ) -> Tensor:
        keys, values = (_with_pad_block(x) for x in (keys_PLGH, values_PLGH))
        out, start = [], 0
        rows = zip(step["lengths"], step["contexts"], step["block_tables"], strict=True)
        for length, context, table in rows:
            own = slice(start, start + length)
            one = self._step(length, context, table, step["block_size"], len(keys) - 1, window)
            out.append(
                self.op("rel_attention")(q_TNH[own], rel_TNR[own], keys, values, one, window)
            )
            start += length
        return torch.cat(out)

    def _step(
        self,
        length: int,
        context: int,
        table: Sequence[int],
        block_size: int,
        pad_block: int,
        window: int | None,
    ) -> HpuStep:
        """One request: a decode step for one token, else a prefill."""
        blocks = -(-context // block_size)
        if length == 1:
            return build_decode(
                [context],
                [table],
                num_blocks=context // block_size + 1,
                window=window or block_size,
                num_rows=1,
                block_size=block_size,
                pad_block=pad_block,
                device=self.device,
            )
        return build_prefill(
            [length],
            [context],
            [table],
            row_length=length,
            num_context_blocks=blocks,
            num_rows=1,
            block_size=block_size,
            pad_block=pad_block,
            device=self.device,
        )

    def model_logits(self, case: OpCase, dtype: torch.dtype = torch.float32) -> Tensor:
        """`[T, V]` of the tiny decoder over rectangular steps."""
        decoder = tiny_decoder(self.backend, case.values["weights_seed"], dtype, self.device)
        config, block_size = decoder.config, case.values["block_size"]
        ids_T = case.tensors["ids_T"].to(self.device)
        table = range(1, 2 + len(ids_T) // block_size)
        pad_block = len(table) + 1
        caches = Caches(
            HpuKVCache.allocate(config, pad_block, block_size, dtype, device=self.device),
            HpuConvStore.of(decoder, pad_block, DEFAULTS, self.device),
        )
        logits, context = [], 0
        for part in ids_T.split(case.values["chunks"]):
            step = self._step(
                len(part), context, table, block_size, pad_block, config.sliding_window
            )
            logits.append(decoder.logits(decoder(part, step, caches)))
            context += len(part)
        return torch.cat(logits)


def _of_request(arguments: Mapping[str, Any], q: int, start: int, end: int) -> dict[str, Any]:
    """The arguments of request `q` alone: its tokens, its history, starts of one row."""
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, QkvrWeights) or not isinstance(value, Tensor):
            found[name] = value
        elif name.endswith("_QJC"):
            found[name] = value[q : q + 1]
        elif name.split("_")[-1].startswith("T"):
            found[name] = value[start:end]
        else:
            found[name] = value
    return {**found, "starts": (0, end - start)}


def _with_pad_block(pages_PLGH: Tensor) -> Tensor:
    """The pages and a pad block behind them, finite everywhere."""
    pages = torch.cat([pages_PLGH, pages_PLGH[:1]])
    return pages.nan_to_num(GARBAGE)
