"""How the tensors of an `HpuStep` ride in vllm-gaudi's attention metadata, there and back.

The metadata that reaches the model has a fixed list of fields; the rest is dropped on the way, and
a Python number among them would be a new graph per value. So our tensors take fields that are None
for a model like ours:

    step                              prefill field                 decode field
    rows.load_Q                       load_indices_tensor           load_indices_tensor
    rows.store_QR                     store_indices_tensor          store_indices_tensor
    rows.ends_QR                      seqlens_offsets_for_blocks    seqlens_offsets_for_blocks
    keys.contexts_Q, lengths_Q        context_lens_tensor, seq_lens_tensor
    keys.far_QF, blocks_QM            window_block_list, block_list
    keys.every                                                      block_list, blocks_caching_range
    keys.window                                                     window_block_list, _groups
    slots_T                           slot_mapping                  slot_mapping

`block_groups` is left to vllm-gaudi, which rewrites its padding in place on some devices. A prefill
also gets a dummy `attn_bias`: vllm-gaudi makes a mask of [Q, 1, S, context + S] where there is
none, a gigabyte at a context of 262,144, and our attention makes its own.

What it is not: the tensors' values (builders.py) or the choice of a bucket (the runner's).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inkling_hpu.step import BlockList, ConvRows, DecodeKeys, HpuStep, PrefillKeys
from inkling_hpu.switches import Switches


def put(metadata: Any, step: HpuStep, no_mask: Tensor) -> None:
    """Write `step` into `metadata`, a HPUAttentionMetadataV1, in place.

    no_mask: any tensor of a fixed shape on the step's device.
    """
    metadata.load_indices_tensor = step.rows.load_Q
    metadata.store_indices_tensor = step.rows.store_QR
    metadata.seqlens_offsets_for_blocks = step.rows.ends_QR
    metadata.slot_mapping = step.slots_T.view(step.num_rows, -1)
    keys = step.keys
    if isinstance(keys, PrefillKeys):
        metadata.context_lens_tensor, metadata.seq_lens_tensor = keys.contexts_Q, keys.lengths_Q
        metadata.block_list = _listed(keys.blocks_QM)
        metadata.window_block_list = _listed(keys.far_QF)
        metadata.attn_bias = no_mask
    else:
        metadata.block_list, metadata.blocks_caching_range = (
            keys.every.blocks_P,
            keys.every.groups_P,
        )
        metadata.window_block_list = keys.window.blocks_P
        metadata.window_block_groups = keys.window.groups_P


def take(metadata: Any, positions_QS: Tensor, switches: Switches) -> HpuStep:
    """The step that `put` wrote, from the metadata as the model sees it (trimmed).

    positions_QS: [Q, S] absolute positions, any integer dtype; anything in padding.
    """
    rows = ConvRows(
        metadata.load_indices_tensor,
        metadata.store_indices_tensor,
        metadata.seqlens_offsets_for_blocks,
    )
    num_rows = positions_QS.shape[0]
    if metadata.is_prompt:
        keys: PrefillKeys | DecodeKeys = PrefillKeys(
            metadata.context_lens_tensor,
            metadata.seq_lens_tensor,
            _blocks(metadata.window_block_list, rows.load_Q, num_rows),
            _blocks(metadata.block_list, rows.load_Q, num_rows),
        )
    else:
        keys = DecodeKeys(
            BlockList(metadata.block_list, metadata.blocks_caching_range),
            BlockList(metadata.window_block_list, metadata.window_block_groups),
        )
    return HpuStep(
        positions_QS.flatten().long(),
        metadata.slot_mapping.flatten(),
        num_rows,
        rows,
        keys,
        metadata.block_size,
        switches,
    )


def _listed(blocks_QM: Tensor) -> Tensor | None:
    """Flat; None where there are none."""
    return blocks_QM.flatten() if blocks_QM.numel() else None


def _blocks(block_list: Tensor | None, like: Tensor, num_rows: int) -> Tensor:
    """`[Q, M]` of a flat list; `[Q, 0]` of none."""
    if block_list is None:
        return torch.empty(num_rows, 0, dtype=like.dtype, device=like.device)
    return block_list.view(num_rows, -1)
