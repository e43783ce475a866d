"""install.sh in an environment of its own: twice, then undone; and what it refuses.

The environment has the metadata of a vllm-gaudi image (and torch itself where INKLING_IMAGE_TORCH
is set: `nox -s install`), real pip, and this repository's real wheels.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import machines
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
GAUDI = ROOT / "deploy" / "gaudi"
THERE = ("vllm", "vllm_gaudi", "habana-torch-plugin", "transformers")
IMAGE = {name: machines.ON_GAUDI[name] for name in THERE}
TORCH = os.environ.get("INKLING_IMAGE_TORCH")  # a requirement, for example torch==2.13.0


def run(*command: object, status: int = 0, **environ: str) -> str:
    """What a command said, on both outputs."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        env={**kept, "COLUMNS": "250", **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """Our three wheels: those that nox has just built, or built from this tree."""
    if built := os.environ.get("INKLING_WHEELS"):
        return Path(built).resolve()
    folder = tmp_path_factory.mktemp("wheels")
    packages = [ROOT / "packages" / f"inkling-{name}" for name in ("parsers", "core", "hpu")]
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, *packages)
    return folder


class Image:
    """An environment that looks to pip like a vllm-gaudi image."""

    def __init__(self, folder: Path, versions: dict[str, str], torch: str | None = None) -> None:
        run(sys.executable, "-m", "venv", folder)
        self.folder, self.python = folder, folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python*/site-packages")
        if torch:
            run(self.python, "-m", "pip", "install", "-q", torch)
        else:
            versions = {**versions, "torch": machines.ON_GAUDI["torch"]}
        machines.install(self.site, versions)
        machines.write_vllm_gaudi(self.site / "vllm_gaudi")

    def install(self, *options: object, status: int = 0) -> str:
        """Runs install.sh here."""
        return run(GAUDI / "install.sh", "--python", self.python, *options, status=status)

    def freeze(self) -> list[str]:
        """What pip says is installed, itself included."""
        return run(self.python, "-m", "pip", "freeze", "--all").splitlines()

    def files(self) -> dict[str, int]:
        """Size of every file, but for compiled code, which Python writes when it runs."""
        return {
            str(path.relative_to(self.folder)): path.stat().st_size
            for path in self.folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Image:
    return Image(tmp_path_factory.mktemp("image") / "root", IMAGE, TORCH)


def test_twice_then_undone(image: Image, wheels: Path):
    options = ("--wheels", wheels, "--no-doctor")
    freeze, files = image.freeze(), image.files()

    planned = image.install("--wheels", wheels, "--dry-run")
    assert "would add inkling_hpu-" in planned and "would add hydra-core==1.3" in planned
    assert image.files() == files

    assert "adds inkling_core-" in image.install(*options)
    assert set(freeze) < set(image.freeze()), "a distribution of the image was changed"
    assert "inkling COMMAND" in run(image.folder / "bin" / "inkling", "--help")
    installed = image.files()

    assert "nothing to do" in image.install(*options)
    assert image.files() == installed
    check_changed_wheel(image, options)

    told = image.install("--wheels", wheels, status=1)  # no card here: the doctor's status
    assert "nothing to do" in told and "--runtime=habana" in told
    check_doctor(image)
    check_serve(image)

    machines.install(image.site, {"theirs": "1.0"})  # the operator's own, since then
    assert "would remove inkling-core" in image.install("--undo", "--dry-run")
    assert "removes inkling-core" in image.install("--undo")
    assert set(image.freeze()) == {*freeze, "theirs==1.0"}
    shutil.rmtree(image.site / "theirs-1.0.dist-info")
    assert (image.freeze(), image.files()) == (freeze, files)
    assert "nothing to undo" in image.install("--undo")


def check_changed_wheel(image: Image, options: tuple[object, ...]) -> None:
    """A wheel with other content is installed again, alone."""
    record = image.folder / "share" / "inkling" / "installed.json"
    content = json.loads(record.read_text())
    content["wheels"]["inkling-hpu"] = "another sum"
    record.write_text(json.dumps(content))
    assert re.findall(r"adds (\w+)", image.install(*options)) == ["inkling_hpu"]


def check_doctor(image: Image) -> None:
    """All that the doctor misses is what this machine cannot have."""
    command = [image.python, "-m", "inkling_core.cli.main", "doctor", "device=gaudi", "format=json"]
    said = run(*command, status=1, PT_HPU_LAZY_MODE="1")
    told, _ = json.JSONDecoder().raw_decode(said)  # the settings follow, on the other output
    faults = {one["what"] for one in told["findings"] if one["state"] == "fault"}
    without_torch = set() if TORCH else {"memory", "conflicts"}
    assert faults == {"kernel module", "hl-smi", "cards"} | without_torch


def check_serve(image: Image) -> None:
    """serve.sh ends where the doctor finds a fault, before vLLM is imported."""
    command = [GAUDI / "serve.sh", "--model", image.folder, "--port", "1"]
    folder = image.folder.parent / "metrics"
    folder.mkdir()
    (folder / "left_over.db").touch()
    environ = {"PYTHON": str(image.python), "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    told = run(*command, status=1, **environ)
    assert "inkling doctor: gaudi" in told and "No module named vllm" not in told
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"rich": "1.0"}, "pip install failed"),  # a need that the image's own blocks
        ({"inkling-core": "0.0.9"}, "here already, and not by install.sh"),
    ],
    ids=["old-rich", "foreign-inkling"],
)
def test_environments_that_are_refused(there, said, image, wheels):
    machines.install(image.site, there)
    files = image.files()
    try:
        assert said in image.install("--wheels", wheels, status=2)
        assert image.files() == files
    finally:
        for name in there:
            shutil.rmtree(next(image.site.glob(f"{name.replace('-', '_')}-*.dist-info")))


def test_an_environment_without_vllm_gaudi_is_refused():
    told = run(GAUDI / "install.sh", "--python", sys.executable, status=2)
    assert "has no vllm-gaudi" in told and "this is no vllm-gaudi image" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--wheel", "x"], "unknown option --wheel"),
        (["--wheels"], "--wheels needs a folder"),
        (["--wheels", "/nowhere"], "0 wheels of inkling-parsers in /nowhere"),
        (["--python", "/no/python"], "no Python at /no/python"),
    ],
    ids=["typo", "no-value", "no-wheels", "no-python"],
)
def test_options_that_are_refused(options, said, image):
    assert said in image.install(*options, status=2)


def test_help_is_the_head_of_the_file():
    told = run(GAUDI / "install.sh", "--help")
    assert told.startswith("Installs inkling") and "--undo" in told and "set -euo" not in told


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_needs_are_those_of_the_packages():
    import tomllib

    sys.path.insert(0, str(GAUDI))
    import installed

    declared = set()
    for name in installed.OURS:
        file = ROOT / "packages" / name / "pyproject.toml"
        declared |= set(tomllib.loads(file.read_text())["project"].get("dependencies", ()))
    by_image = {"torch", "numpy", *installed.OURS}
    wanted = {str(Requirement(one)) for one in declared if Requirement(one).name not in by_image}
    assert {str(Requirement(one)) for one in installed.NEEDS} == wanted
