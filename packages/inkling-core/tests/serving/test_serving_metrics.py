"""Gauges that a worker sets reach the page that another process serves."""

from __future__ import annotations

import re
from typing import Any

import pytest

from inkling_core.config.named import config_of
from inkling_core.plan.cpu import CPU
from inkling_core.plan.settings import PlanSettings

pytestmark = pytest.mark.server


def test_a_conv_row_for_every_block(nano_server: Any) -> None:
    page = nano_server.get("/metrics").body
    (blocks,) = re.findall(r'num_gpu_blocks="(\d+)"', page)
    assert nano_server.metric("inkling:conv_rows") == int(blocks)
    assert nano_server.metric("inkling:conv_row_bytes") % int(blocks) == 0
    assert nano_server.metric("inkling:conv_row_bytes") > int(blocks)


def test_the_pool_is_the_planned_one(nano_server: Any) -> None:
    """`inkling plan` says before the start what the server reports after it."""
    served = nano_server.settings
    asked = PlanSettings(
        memory_gib=64,
        max_model_len=served.max_model_len,
        max_num_seqs=served.max_num_seqs,
        max_num_batched_tokens=served.max_num_batched_tokens,
        kv_cache_mib=served.kv_cache_mib,
        block_size=served.block_size,
    )
    plan = CPU.plan(asked, config_of("nano"))
    (blocks,) = re.findall(r'num_gpu_blocks="(\d+)"', nano_server.get("/metrics").body)
    (tokens,) = re.findall(r"KV cache size: ([\d,]+) tokens", nano_server.log.read_text())
    assert (plan.blocks, f"{plan.pool_tokens:,}") == (int(blocks), tokens)
    (rows,) = (part.num_bytes for part in plan.parts if part.name == "conv rows")
    assert rows >= nano_server.metric("inkling:conv_row_bytes") > 0.9 * rows
