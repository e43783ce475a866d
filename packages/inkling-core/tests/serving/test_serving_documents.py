"""The documents' console blocks that need a server, carried out against one of the embedded model.

Not the other blocks: `tests/contract/test_docs.py` carries those out. `tests/documents.py` says how
a block is read.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tests"))  # documents.py
import documents

pytestmark = pytest.mark.server


@pytest.mark.parametrize("path", documents.sessions(server=True), ids=documents.label)
def test_a_console_session_prints_what_it_shows(
    path: Path, tmp_path: Path, nano_server: Any
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("NO DOCUMENTS: the pages ask servers with curl, which is not here")
    documents.carry_out(path, tmp_path, server=f"127.0.0.1:{nano_server.settings.port}")
