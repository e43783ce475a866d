"""The memory that docs/backends/hpu.md promises is what the code computes."""

import re
from pathlib import Path

import pytest
import torch

from inkling_core.config import PRESETS
from inkling_core.doctor.fit import GIB
from inkling_core.doctor.matrix import read_matrix
from inkling_core.weights.info import checkpoint_info
from inkling_hpu.kv_cache import page_bytes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backends" / "hpu.md"
MEMORY = PAGE.read_text().partition("## Memory per card")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (\d) \|(.*)\|$", MEMORY, re.M)
BLOCKS = 2560


def test_the_table_is_there():
    assert [ranks for ranks, _ in ROWS] == ["8", "4"] and f"{BLOCKS:,} blocks of 128" in MEMORY
    assert f"--num-gpu-blocks-override {BLOCKS}" in PAGE.read_text()
    assert f"{read_matrix('inkling_hpu').data['card']['memory_gib']} GiB" in MEMORY


@pytest.mark.parametrize(("ranks", "cells"), ROWS)
def test_a_row_is_the_sum_that_the_code_does(ranks, cells):
    config = PRESETS["inkling_small"]
    page = page_bytes(config, int(ranks), 128, torch.bfloat16)
    pool = [BLOCKS * config.num_hidden_layers * size / GIB for size in page]
    parts = [checkpoint_info(config).card_bytes[int(ranks)] / GIB, *pool]
    told = [float(cell) for cell in cells.split("|")]
    assert told == pytest.approx([*parts, sum(parts)], abs=0.0051)
