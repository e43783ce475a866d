"""Which commands there are: ours as a table, other packages' through the entry-point group
`inkling.commands`.

Not what they do: each row names a settings class and a function, both `module:attribute`, imported
only when the command runs. An entry point of another package is a `Command`, treated like ours, or
a function that takes the list of remaining arguments and returns an exit status or None. Its name
may be two words ("bench ops").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "inkling.commands"
CONF = "inkling_core.conf"
PARITY_CONF = "inkling_core.parity.conf"  # there `backend` is a setting, not a group
PLAN_CONF = "inkling_core.plan.conf"  # and there `model`


@dataclass(frozen=True)
class Command:
    """A command whose settings Hydra composes from `<config>.yaml` of the package `conf`.

    name: as typed, words apart by one space; summary: one line for the list; text: the setting that
    takes free text from the command line, if any; examples: command lines that a newcomer can copy;
    conf: ours, which other packages extend, or a package of the command's own, where a setting may
    have the name of one of our config groups; shell: the free text is a command line, and its words
    stay apart as a shell had them.
    """

    name: str
    config: str
    summary: str
    settings_path: str
    run_path: str
    examples: tuple[str, ...]
    text: str | None = None
    conf: str = CONF
    shell: bool = False

    def settings(self) -> type:
        """The settings class. Imports its module, which must not need torch."""
        return load(self.settings_path)

    def runner(self) -> Callable[[Any], Any]:
        """The function that does the work. May import torch, vLLM and the rest."""
        return load(self.run_path)


_ROWS = (
    Command(
        "serve",
        "serve",
        "OpenAI-compatible server (vLLM) for the embedded nano model or any checkpoint",
        "inkling_core.serving.settings:ServeSettings",
        "inkling_core.serving.server:serve",
        (
            "inkling serve",
            "inkling serve checkpoint=DIR port=8100 max_model_len=4096",
            "inkling serve preset=smoke --cfg job",
        ),
    ),
    Command(
        "doctor",
        "doctor",
        "why a server would not start here, and what to do: versions, checkpoint, memory, port",
        "inkling_core.doctor.settings:DoctorSettings",
        "inkling_core.doctor.run:run",
        (
            "inkling doctor",
            "inkling doctor checkpoint=DIR port=8100 format=json",
            "inkling doctor device=gaudi -- --model DIR --tensor-parallel-size 8",
        ),
        text="arguments",
        shell=True,
    ),
    Command(
        "plan",
        "plan",
        "before there is a machine: memory per card, pool, requests, step time, launch command",
        "inkling_core.plan.settings:PlanSettings",
        "inkling_core.plan.command:run",
        (
            "inkling plan",
            "inkling plan device=gaudi model=inkling_small max_model_len=262144",
            "inkling plan device=gaudi model=inkling_small max_model_len=65536 format=plot",
        ),
        conf=PLAN_CONF,
    ),
    Command(
        "generate",
        "generate",
        "one answer without a server",
        "inkling_core.cli.settings:GenerateSettings",
        "inkling_core.generate_text:run",
        (
            'inkling generate "12+7=?"',
            'inkling generate checkpoint=DIR max_tokens=64 -- "x=1, y=?"',
        ),
        text="prompt",
    ),
    Command(
        "eval",
        "eval",
        "held-out accuracy per task of a nano model",
        "inkling_core.cli.settings:EvalSettings",
        "inkling_core.nano.eval:run",
        ("inkling eval", "inkling eval cases=50 tasks=[sum,needle]"),
    ),
    Command(
        "gates",
        "gates",
        "correctness checks of a running server, with report and exit status",
        "inkling_core.cli.settings:GatesSettings",
        "inkling_core.gates.run:run",
        (
            "inkling gates url=http://127.0.0.1:8000",
            "inkling gates out=gates.json",
            "inkling gates tier=long",
        ),
    ),
    Command(
        "logits",
        "logits",
        "logits of given token ids, to compare with another implementation",
        "inkling_core.cli.settings:LogitsSettings",
        "inkling_core.logits_file:run",
        ("inkling logits checkpoint=DIR prompts=FILE.jsonl out=FILE.safetensors dtype=float32",),
    ),
    Command(
        "checkpoint info",
        "checkpoint_info",
        "parameters, bytes, and bytes per card of a checkpoint or a published configuration",
        "inkling_core.cli.settings:CheckpointInfoSettings",
        "inkling_core.weights.info:run",
        ("inkling checkpoint info", "inkling checkpoint info checkpoint=DIR tensor_parallel=8"),
    ),
    Command(
        "checkpoint tiny",
        "checkpoint_tiny",
        "write a small random checkpoint in the published format",
        "inkling_core.cli.settings:CheckpointTinySettings",
        "inkling_core.weights.tiny:run",
        ("inkling checkpoint tiny out=DIR seed=1",),
    ),
    Command(
        "parity dump",
        "parity_dump",
        "inputs and outputs of every op and of a whole model, by one back end, as a bundle",
        "inkling_core.parity.settings:ParityDumpSettings",
        "inkling_core.parity.check:dump",
        ("inkling parity dump out=DIR", "inkling parity dump out=DIR backend=cuda_ref cases=tp8"),
        conf=PARITY_CONF,
    ),
    Command(
        "parity check",
        "parity_check",
        "another back end against a bundle: table per op, exit status by the tolerance table",
        "inkling_core.parity.settings:ParityCheckSettings",
        "inkling_core.parity.check:check",
        ("inkling parity check backend=hpu bundle=DIR out=FILE.json",),
        conf=PARITY_CONF,
    ),
    Command(
        "parity report",
        "parity_report",
        "results of parity checks as Markdown and a plot",
        "inkling_core.parity.settings:ParityReportSettings",
        "inkling_core.parity.report:run",
        ("inkling parity report results=[A.json,B.json] out=DIR",),
        conf=PARITY_CONF,
    ),
)
BUILT_IN: dict[str, Command] = {row.name: row for row in _ROWS}

# Commands that belong to a package that may be absent: name -> distribution.
ELSEWHERE = {
    "bench masks": "inkling-hpu",
    "bench ops": "inkling-hpu",
    "buckets": "inkling-hpu",
    "parsers": "inkling-parsers",
}


def from_packages() -> dict[str, EntryPoint]:
    """Commands that installed packages add, in order of their names: packages are found in the
    order of the file system. Built-in names cannot be replaced."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {point.name: point for point in found if point.name not in BUILT_IN}


def composed() -> dict[str, Command]:
    """Every command whose settings Hydra composes: ours, then those of installed packages."""
    added = {name: point.load() for name, point in from_packages().items()}
    return {**BUILT_IN, **{name: it for name, it in added.items() if isinstance(it, Command)}}


def load(path: str) -> Any:
    """`package.module:attribute` imported."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
