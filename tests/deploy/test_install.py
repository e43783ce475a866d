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
import zipfile
from pathlib import Path

import installed
import machines
import pytest
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

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
    folder = tmp_path_factory.mktemp("some wheels")
    if built := os.environ.get("INKLING_WHEELS"):
        for file in Path(built).glob("*.whl"):
            shutil.copy(file, folder)
            (folder / file.name).chmod(0o444)
        return folder
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
    return Image(tmp_path_factory.mktemp("an image") / "its root", IMAGE, TORCH)


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
    check_arguments(image, environ)


def check_arguments(image: Image, environ: dict[str, str]) -> None:
    """What reaches vLLM, in whose place a module prints it: loopback comes first, and an operator's
    own host after it."""
    server = image.site / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.parent.mkdir(parents=True)
    server.write_text("import os, sys\nprint(sys.argv[1:], os.environ['PROMETHEUS_MULTIPROC_DIR'])")
    environ |= {"SKIP_DOCTOR": "1", "TMPDIR": str(image.folder.parent)}
    told = run(GAUDI / "serve.sh", "--served-model-name", "a b", "--host", "0.0.0.0", **environ)
    asked = ["--host", "127.0.0.1", "--served-model-name", "a b", "--host", "0.0.0.0"]
    assert told.strip() == f"{asked} {environ['PROMETHEUS_MULTIPROC_DIR']}"
    environ["PROMETHEUS_MULTIPROC_DIR"] = ""
    own = {run(GAUDI / "serve.sh", **environ) for _ in range(2)}
    assert len(own) == 2, "two servers with one folder: the second empties it"
    shutil.rmtree(image.site / "vllm")


def test_half_way_then_finished_or_undone(image: Image, wheels: Path, tmp_path):
    """pip fails at our wheels, after the needs are there; then the record is damaged."""
    freeze, files = image.freeze(), image.files()
    for file in wheels.glob("*.whl"):
        shutil.copy(file, tmp_path)
    (broken,) = tmp_path.glob("inkling_hpu-*.whl")
    broken.unlink()
    with zipfile.ZipFile(broken, "w") as archive:
        archive.writestr("inkling_hpu/__init__.py", "")

    assert "pip install failed" in image.install("--wheels", tmp_path, status=2)
    assert any(line.startswith("hydra-core==") for line in image.freeze())
    finished = image.install("--wheels", wheels, "--no-doctor")
    assert "adds inkling_hpu-" in finished and "adds hydra-core" not in finished

    record = image.folder / "share" / "inkling" / "installed.json"
    whole = record.read_text()
    record.write_text(whole[:20])
    for options in (["--undo"], ["--wheels", wheels]):
        assert "installed.json is damaged" in image.install(*options, status=2)
    record.write_text(whole)
    image.install("--undo")
    assert (image.freeze(), image.files()) == (freeze, files)


def test_a_folder_that_cannot_be_written(image: Image, wheels: Path):
    """Refused before anything is done; root obeys the mode bits once it has lost its privilege."""
    drop = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []
    command = [*drop, GAUDI / "install.sh", "--python", image.python, "--wheels", wheels]
    files = image.files()
    image.site.chmod(0o555)
    try:
        assert f"cannot write to {image.site}" in run(*command, status=2)
    finally:
        image.site.chmod(0o755)
    share = image.folder / "share"
    share.write_text("")
    try:
        assert str(share) in run(*command, status=2)
    finally:
        share.unlink()
    assert image.files() == files


@pytest.mark.parametrize(
    ("there", "status", "said"),
    [
        ({"rich": "1.0"}, 2, "pip install failed"),  # a need that the image's own blocks
        ({"inkling-core": "0.0.9"}, 2, "here already, and not by install.sh"),
        ({"distro-info": "1.1build1"}, 0, "would add hydra-core"),  # a version as Debian has them
    ],
    ids=["old-rich", "foreign-inkling", "debian"],
)
def test_what_the_image_has_decides(there, status, said, image, wheels):
    machines.install(image.site, there)
    (image.site / "half_removed-1.0.dist-info").mkdir()
    files = image.files()
    try:
        assert said in image.install("--wheels", wheels, "--dry-run", status=status)
        assert image.files() == files
    finally:
        for name in (*there, "half-removed"):
            shutil.rmtree(next(image.site.glob(f"{name.replace('-', '_')}-*.dist-info")))


def test_a_password_of_the_index_is_not_told(image, wheels):
    environ = {"PIP_INDEX_URL": "http://me:hunter2@127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": ""}
    command = [GAUDI / "install.sh", "--python", image.python, "--wheels", wheels]
    told = run(*command, status=2, **environ)
    assert "pip install failed" in told and "hunter2" not in told


@pytest.mark.parametrize(
    ("content", "version", "said"),
    [(b"PK\x03\x04 half a", "0.1.0", "no whole wheel"), (None, "0.0.9", "wheels of 0.0.9 and")],
    ids=["torn", "mixed"],
)
def test_wheels_that_are_refused(content, version, said, image, wheels, tmp_path):
    for file in wheels.glob("*.whl"):
        name = re.sub(r"-[\d.]+-", f"-{version}-", file.name) if "_hpu" in file.name else file.name
        shutil.copy(file, tmp_path / name)
    if content is not None:
        (changed,) = tmp_path.glob("inkling_hpu-*.whl")
        changed.unlink()
        changed.write_bytes(content)
    files = image.files()
    assert said in image.install("--wheels", tmp_path, status=2) and image.files() == files


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


@pytest.mark.parametrize(
    "version", ["2.10.0a0+git449b176", "1!2.0.post1.dev3", "0.26.0+empty", "1.1build1", "1.0~rc1"]
)
def test_what_may_be_a_constraint_is_what_pip_reads(version):
    try:
        Version(version)
        pinned = [f"one=={version}"]
    except InvalidVersion:
        pinned = []
    assert installed.pins({"one": version}) == pinned


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_needs_are_those_of_the_packages():
    import tomllib

    declared = set()
    for name in installed.OURS:
        file = ROOT / "packages" / name / "pyproject.toml"
        declared |= set(tomllib.loads(file.read_text())["project"].get("dependencies", ()))
    by_image = {"torch", "numpy", *installed.OURS}
    wanted = {str(Requirement(one)) for one in declared if Requirement(one).name not in by_image}
    assert {str(Requirement(one)) for one in installed.NEEDS} == wanted
