"""Lets these tests import, under pytest's importlib mode, the modules beside this file,
`documents.py` and the generator of the reference pages; and what the doctor's tests share."""

import socket
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent, HERE.parents[1] / "docs"):
    sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A sound checkpoint of three shards."""
    from inkling_core.weights.tiny import make_tiny

    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    make_tiny(folder, shards=3, tokenizer=True)
    return folder


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
