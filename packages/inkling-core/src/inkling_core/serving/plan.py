"""Start-up arithmetic: what a page costs for a given model, and whether a pool is large enough.

What it is: the numbers that the server needs before vLLM starts and that the model class needs
after. What it is not: byte offsets (pages.py) or anything of vLLM's; it imports torch only.
"""

from __future__ import annotations

import torch

from inkling_core.config import InklingConfig
from inkling_core.conv_state.layout import ConvLayout
from inkling_core.serving.pages import PageLayout

MIB = 2**20


def page_layout(
    config: InklingConfig,
    tp_size: int,
    block_size: int,
    kv_dtype: torch.dtype,
    row_dtype: torch.dtype,
) -> PageLayout:
    """One page size for all layers: room for the layer with the most KV heads."""
    most = max(config.kv_heads(layer) for layer in range(config.num_hidden_layers))
    conv = ConvLayout.from_config(config, tp_size)
    return PageLayout(
        block_size=block_size,
        kv_heads=kv_heads_per_rank(most, tp_size),
        head_dim=config.head_dim,
        kv_dtype=kv_dtype,
        row_length=conv.history,
        row_width=conv.width,
        row_dtype=row_dtype,
    )


def kv_heads_per_rank(heads: int, tp_size: int) -> int:
    """KV heads are sharded up to their count and replicated beyond it."""
    return max(1, heads // tp_size)


def conv_row_dtype(setting: str, model_dtype: torch.dtype) -> torch.dtype:
    """The dtype that `conv_dtype` names; auto is the model's."""
    return model_dtype if setting == "auto" else getattr(torch, setting)


def row_share(layout: PageLayout) -> float:
    """The part of a page that the conv row takes, between 0 and 1."""
    return 1 - layout.block_size / layout.slots_per_page


def pool_blocks(kv_cache_mib: int, layout: PageLayout, num_layers: int) -> int:
    """Blocks, the null block included, that vLLM makes of a pool."""
    return kv_cache_mib * MIB // (layout.page_bytes * num_layers)


def check_pool(num_blocks: int, block_size: int, max_model_len: int) -> None:
    """Raises ValueError unless `num_blocks`, one of them null, hold `max_model_len` tokens."""
    needed = -(-max_model_len // block_size) + 1
    if num_blocks < needed:
        raise ValueError(
            f"the KV pool has {num_blocks} blocks of {block_size} tokens, but one request of "
            f"max_model_len={max_model_len} tokens needs {needed} (the null block included): "
            f"raise kv_cache_mib or lower max_model_len to {max(0, num_blocks - 1) * block_size}"
        )
