"""What is examined: a machine, and what a server is to be started with.

Not a check. `Machine` is every place that a check reads, so that a test can put a folder there.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from inkling_core.doctor.settings import DoctorSettings
from inkling_core.serving.settings import DTYPES

SETTINGS = {  # vLLM's argument -> the setting of `inkling serve` that says the same
    "--model": "checkpoint",
    "--host": "host",
    "--port": "port",
    "--dtype": "dtype",
    "--max-model-len": "max_model_len",
    "--block-size": "block_size",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--tensor-parallel-size": "tensor_parallel",
}
SHORT = {  # vLLM's own short names
    "--tensor-parallel-size": ("-tp",),
    "--pipeline-parallel-size": ("-pp",),
    "--data-parallel-size": ("-dp",),
    "--quantization": ("-q",),
    "--enable-expert-parallel": ("-ep",),
}


@dataclass(frozen=True)
class Machine:
    """root: the file system. packages: folders of installed packages; None is Python's own path.
    environ: variables."""

    root: Path = Path("/")
    packages: tuple[str, ...] | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def version(self, *names: str) -> str | None:
        """The version of the first of these distributions that is installed."""
        for name in names:
            for found in distributions(name=name, **self._path):
                return found.version
        return None

    def entry_points(self, group: str) -> set[str]:
        """Names of the entry points in `group`, over all installed distributions."""
        every = [point for found in distributions(**self._path) for point in found.entry_points]
        return {point.name for point in every if point.group == group}

    def module_folder(self, name: str) -> Path | None:
        """Where a package lies, without importing it."""
        if self.packages is None:
            spec = importlib.util.find_spec(name)
        else:
            spec = PathFinder.find_spec(name, list(self.packages))
        places = None if spec is None else spec.submodule_search_locations
        return Path(next(iter(places))) if places else None

    def program(self, name: str) -> str | None:
        """Where a program is on PATH."""
        return shutil.which(name, path=self.environ.get("PATH", os.defpath))

    def text(self, path: str) -> str | None:
        """A small file below the root, or None."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    @property
    def _path(self) -> dict[str, Any]:
        return {} if self.packages is None else {"path": list(self.packages)}


@dataclass(frozen=True)
class Subject:
    """settings: with vLLM's arguments in them. more: the arguments that are no setting of ours, by
    name without dashes. ignored: those that nobody looks at."""

    settings: DoctorSettings
    machine: Machine
    more: Mapping[str, Any] = field(default_factory=dict)
    ignored: Sequence[str] = ()

    @classmethod
    def of(cls, settings: DoctorSettings, machine: Machine) -> Subject:
        """Takes vLLM's arguments apart. Raises ValueError naming one that cannot be read."""
        try:
            words = [_spelled(word) for word in shlex.split(settings.arguments)]
        except ValueError as error:
            raise ValueError(f"arguments: {error} in {settings.arguments!r}") from None
        if words and not words[0].startswith("-"):
            raise ValueError(
                f"{words[0]!r} is neither `name=value` nor an argument of vLLM's, which begin with "
                "`--` and go after a lone `--`; `inkling doctor --help` lists the settings"
            )
        try:
            parsed, ignored = _parser().parse_known_args(words)
        except argparse.ArgumentError as error:
            raise ValueError(f"arguments: {error}") from None
        given = {name: value for name, value in vars(parsed).items() if value is not None}
        if given.get("dtype") not in (None, *DTYPES):  # vLLM knows more; a check refuses it
            given["other_dtype"] = given.pop("dtype")
        ours = {name: given.pop(name) for name in SETTINGS.values() if name in given}
        return cls(replace(settings, **ours), machine, given, tuple(ignored))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)

    def add(argument: str, **how: Any) -> None:
        parser.add_argument(argument, *SHORT.get(argument, ()), **how)

    text = {"checkpoint", "host", "dtype"}
    for argument, name in SETTINGS.items():
        add(argument, dest=name, type=str if name in text else int)
    for argument in ("num-gpu-blocks-override", "pipeline-parallel-size", "data-parallel-size"):
        add(f"--{argument}", type=int)
    add("--gpu-memory-utilization", type=float)
    for argument in ("kv-cache-dtype", "quantization", "speculative-config", "kv-transfer-config"):
        add(f"--{argument}")
    add("--kv-offloading-size")
    for argument in ("enable-lora", "enable-expert-parallel"):
        add(f"--{argument}", action="store_const", const=True)
    return parser


def _spelled(word: str) -> str:
    """vLLM takes `--max_model_len` for `--max-model-len`."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}"
