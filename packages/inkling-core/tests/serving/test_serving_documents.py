"""What the documents say about a running server, held to one of the embedded model: console blocks
are carried out, and the recorded metrics are those that it exports.

Not the other blocks: `tests/contract/test_docs.py` carries those out. `tests/documents.py` says how
a block is read.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tests"))  # documents.py
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "docs"))  # generate.py
import generate

import documents

pytestmark = pytest.mark.server


@pytest.mark.parametrize("path", documents.sessions(server=True), ids=documents.label)
def test_a_console_session_prints_what_it_shows(
    path: Path, tmp_path: Path, nano_server: Any
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("NO DOCUMENTS: the pages ask servers with curl, which is not here")
    documents.carry_out(path, tmp_path, server=f"127.0.0.1:{nano_server.settings.port}")


def test_the_recorded_metrics_are_exported(nano_server: Any) -> None:
    body = {"messages": [{"role": "user", "content": "12+7=?"}], "max_tokens": 4}
    assert nano_server.post("/v1/chat/completions", body).status == 200
    recorded = json.loads(generate.METRICS.read_text())["metrics"]
    exported = generate.families(nano_server.get("/metrics").body)
    assert exported == recorded, "python docs/generate.py --record URL, and read the diff"
