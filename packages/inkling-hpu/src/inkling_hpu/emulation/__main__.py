"""Run a module or a script on the emulated device.

    python -m inkling_hpu.emulation -m vllm.entrypoints.openai.api_server --model DIR
    python -m inkling_hpu.emulation script.py

What it is not: an environment. torch, vLLM and vllm-gaudi have to be importable.
"""

from __future__ import annotations

import runpy
import sys

from inkling_hpu.emulation import install

USAGE = "usage: python -m inkling_hpu.emulation (-m MODULE | SCRIPT) [ARGUMENTS ...]"


def main(arguments: list[str]) -> None:
    """Install the emulation, then run what the arguments name as `__main__`."""
    named = arguments[:1] == ["-m"]
    rest = arguments[1:] if named else arguments
    if not rest or rest[0] in ("-h", "--help"):
        sys.exit(USAGE if rest else f"{USAGE}\nnothing to run")
    install()
    sys.argv = rest
    if named:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
