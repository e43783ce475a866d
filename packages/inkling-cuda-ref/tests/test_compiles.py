"""Every kernel compiles for a GPU (sm_90) that is not there: the interpreter says nothing of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs triton, which the kernels are written in")

from parity_cases import WHOLE
from test_storage import kernels

SCRIPT = Path(__file__).with_name("compile_kernels.py")
SHARED_MEMORY = 227 * 1024  # of a program on an H100 or H200


def test_every_kernel_compiles():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "bf16", *(["f32"] if WHOLE else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {one["kernel"] for one in found} == {name.rpartition(".")[2] for name, _ in kernels()}
    assert any(one["pointer"] == "*bf16" for one in found)
    assert all(one["shared"] <= SHARED_MEMORY for one in found), found
