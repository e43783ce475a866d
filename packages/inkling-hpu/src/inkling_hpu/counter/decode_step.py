"""One decode step of the decoder that the plugin serves, run and counted without a device.

    build_decoder (the plugin's own)  ->  ids, HpuStep, caches by shape  ->  forward and logits

Everything lies on the meta device: shapes and dtypes, no numbers, no memory. The count therefore
depends on nothing but the model, its switches and the shapes. Sampling, the scheduler and the
copies that bring a step's tensors to the device are not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from inkling_core.config import InklingConfig
from inkling_core.layers.context import Caches
from inkling_core.model import Decoder
from inkling_hpu.builders import build_decode
from inkling_hpu.conv_rows import HpuConvStore
from inkling_hpu.counter.layer_kinds import LayerKinds, layers_by_kind
from inkling_hpu.counter.mode import OpCounter
from inkling_hpu.counter.parts import place_of_caller
from inkling_hpu.counter.report import Counted
from inkling_hpu.kv_cache import HpuKVCache
from inkling_hpu.serving_model import build_decoder
from inkling_hpu.step import HpuStep
from inkling_hpu.switches import Switches

BLOCK_SIZE = 128  # vllm-gaudi's
POOL_BLOCKS = 2560
"""Of the reference deployment; a pool decides how many tensors hold its conv rows."""
META = torch.device("meta")


@dataclass(frozen=True)
class DecodeInputs:
    """What the decoder is called with."""

    ids_T: Tensor
    step: HpuStep
    caches: Caches


def count_decode(
    config: InklingConfig,
    dtype: torch.dtype,
    tp: int,
    streams: int,
    context: int,
    switches: Switches,
    pool_blocks: int = POOL_BLOCKS,
) -> Counted:
    """Counts one decode step of rank 0.

    Args:
        streams: requests that decode together.
        context: length of each, its new token included.
        pool_blocks: blocks that have conv rows, whatever the requests would need.

    Raises ValueError where `tp` does not divide the model.
    """
    decoder = build_decoder(config, dtype, 0, tp, switches)
    decoder.load_weights(list(decoder.named_parameters()))  # as after a load: experts are packed
    return count_step(decoder, decode_inputs(decoder, streams, context, switches, pool_blocks))


def count_step(decoder: Decoder, inputs: DecodeInputs) -> Counted:
    """Counts `decoder` on `inputs`, the logits of every row included."""
    with LayerKinds(decoder) as kinds, OpCounter(lambda: place_of_caller(kinds)) as counter:
        hidden_TD = decoder(inputs.ids_T, inputs.step, inputs.caches)
        decoder.logits(hidden_TD)
    return Counted(layers_by_kind(decoder.config), counter.tally)


def decode_inputs(
    decoder: Decoder,
    streams: int,
    context: int,
    switches: Switches,
    pool_blocks: int = POOL_BLOCKS,
) -> DecodeInputs:
    """`streams` requests of `context` tokens each, every one in blocks of its own."""
    config, each = decoder.config, -(-context // BLOCK_SIZE)
    pad_block = streams * each + 1  # ids 1 .. streams * each are the requests'
    step = build_decode(
        [context - 1] * streams,
        [range(1 + q * each, 1 + (q + 1) * each) for q in range(streams)],
        num_rows=streams,
        num_blocks=streams * each,
        window=config.sliding_window,
        block_size=BLOCK_SIZE,
        pad_block=pad_block,
        switches=switches,
        device=META,
    )
    caches = Caches(
        HpuKVCache.allocate(config, pad_block, BLOCK_SIZE, decoder.dtype, decoder.tp, META),
        HpuConvStore.of(decoder, pool_blocks, switches, META),
    )
    return DecodeInputs(torch.empty(streams, dtype=torch.int64, device=META), step, caches)
