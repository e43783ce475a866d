"""Gauges that a worker sets reach the page that another process serves."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = pytest.mark.server


def test_a_conv_row_for_every_block(nano_server: Any) -> None:
    page = nano_server.get("/metrics").body
    (blocks,) = re.findall(r'num_gpu_blocks="(\d+)"', page)
    assert nano_server.metric("inkling:conv_rows") == int(blocks)
    assert nano_server.metric("inkling:conv_row_bytes") % int(blocks) == 0
    assert nano_server.metric("inkling:conv_row_bytes") > int(blocks)
