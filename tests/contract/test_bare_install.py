"""The wheel alone, without its dependencies but hydra-core: help and configuration work, no torch.

The wheel is built from the source archive, so conf/ has to survive both (it lies outside the
package and enters through a symbolic link).
"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from inkling_core.cli.commands import BUILT_IN

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"


def run(*command, cwd=ROOT, status=0):
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment with hydra-core, a builder of archives, and nothing else."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "hydra-core>=1.3.2,<1.4", "build")
    return python


@pytest.fixture(scope="module")
def wheel(python, tmp_path_factory):
    """The wheel of inkling-core, made from its source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(python, "-m", "build", "-q", ROOT / "packages" / "inkling-core", "-o", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def inkling(python, wheel):
    """The console script of the bare wheel."""
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    run(python, "-c", "import torch", status=1)
    return python.with_name("inkling")


def test_the_wheel_holds_the_whole_configuration(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(path.relative_to(CONF)) for path in CONF.rglob("*") if path.suffix in (".yaml", ".py")
    }
    assert {f"inkling_core/conf/{name}" for name in files} <= names
    assert "inkling_core/py.typed" in names


def test_help_and_configuration_work_without_torch(inkling, tmp_path):
    assert "inkling COMMAND" in run(inkling, "--help", cwd=tmp_path)
    for name in BUILT_IN:
        words = name.split()
        assert f"inkling {name}" in run(inkling, *words, "--help", cwd=tmp_path)
        shown = yaml.safe_load(run(inkling, *words, "--cfg", "job", cwd=tmp_path))
        assert isinstance(shown, dict)
        table = run(inkling, *words, "--info", "defaults", cwd=tmp_path)
        assert f"schema/{BUILT_IN[name].config}" in table
    assert not list(tmp_path.iterdir()), "something was left in the working directory"


def test_a_command_says_what_it_needs(inkling, tmp_path):
    command = [inkling, "logits", "prompts=p", "out=o"]
    done = subprocess.run(
        [*map(str, command)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "needs torch: pip install torch" in done.stderr
