"""Settings of `inkling doctor`: those of `inkling serve`, and how to examine and print."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass

from inkling_core.cli.arguments import command_line
from inkling_core.cli.settings import check_choice
from inkling_core.serving.settings import ServeSettings

DEVICES = ("auto", "cpu", "gaudi")


@dataclass(frozen=True)
class DoctorSettings(ServeSettings):
    """Settings of `inkling doctor`: every setting of `inkling serve` means what it means there.

    arguments: vLLM's own arguments, where the server is started with vLLM's command (on a Gaudi);
    the free text of the command line, after `--`. They win over the settings; keys and tokens
    among them are not kept.
    device: what to examine for; auto is a Gaudi where anything of one is found, else a CPU.
    format: table, or json for one JSON object.
    """

    arguments: str = ""
    device: str = "auto"
    format: str = "table"

    def __post_init__(self) -> None:
        super().__post_init__()
        with suppress(ValueError):  # a quote that is left open: Subject.of tells
            object.__setattr__(self, "arguments", command_line(shlex.split(self.arguments)))
        check_choice("device", self.device, DEVICES)
        if (self.device, self.backend) == ("cpu", "hpu_emulated"):
            raise ValueError(
                "device=cpu contradicts backend=hpu_emulated, which vllm-gaudi runs: leave one out"
            )
        check_choice("format", self.format, ("table", "json"))
