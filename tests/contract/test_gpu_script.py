"""`benchmarks/gpu.sh` on a machine without a GPU: refused with what to do, and rehearsed in full.

Not a timing: a rehearsal runs every step at toy sizes in Triton's interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without a GPU")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.sh"
STAGES = ("parity small", "parity tp8", "short conv", "prefill attention", "layer", "unit tests")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments], env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def test_no_gpu_is_refused_with_the_way_out(tmp_path):
    done = run(str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        "gpu.sh: torch sees no GPU; --rehearse runs the steps on a CPU"
    )
    assert not list(tmp_path.iterdir()), "nothing was measured, nothing is written"


def test_the_rehearsal_goes_through_every_step(tmp_path):
    done = run(str(tmp_path), "--rehearse")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["problems"] == [] and found["machine"]["rehearsal"] is True
    assert set(STAGES) <= set(found)
    assert all("not available" not in found[name] for name in STAGES)
    for rival in ("sdpa", "flex"):
        assert found["prefill attention"][rival]["us"] > 0
    assert (tmp_path / "bundle" / "manifest.json").exists()
    title = (tmp_path / "results.md").read_text().splitlines()[0]
    assert title.endswith("a rehearsal: no figure means anything")
