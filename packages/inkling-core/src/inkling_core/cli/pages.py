"""The help pages: `inkling --help` and `inkling COMMAND --help`.

Not a second list of settings: text, values and groups come from the settings class, the composed
configuration and Hydra's search path, so that a page cannot go stale.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from inkling_core.cli.commands import BUILT_IN, ELSEWHERE, Command, from_packages
from inkling_core.cli.schema import field_help

FLAGS = """\
  --cfg job        print the configuration that the other arguments give, and stop
  --info defaults  print where each part of it comes from, and stop
  --help           this page, with the values that the other arguments give
  --               everything after it is free text"""


def overview() -> str:
    """The list of commands, those of other installed packages and those that need one."""
    lines = [
        "inkling: one definition of the Inkling model family, served and checked everywhere.",
        "",
        "usage: inkling COMMAND [name=value ...] [--help]",
        "",
        *table(_commands()),
        "",
        'Start with `inkling serve`, or `inkling generate "12+7=?"` without a server.',
        "`inkling COMMAND --help` explains every setting of a command.",
    ]
    return "\n".join(lines)


def family(name: str) -> str:
    """The sub-commands of `name` (for `inkling checkpoint`)."""
    rows = [row for row in _commands() if row[0].startswith(f"{name} ")]
    return "\n".join([f"usage: inkling {name} COMMAND [name=value ...]", "", *table(rows)])


def _commands() -> list[tuple[str, str]]:
    """Name and summary of every command, present or known to be elsewhere."""
    rows = [(name, command.summary) for name, command in BUILT_IN.items()]
    added = from_packages()
    rows += [(name, f"from {_owner(point)}") for name, point in added.items()]
    rows += [(name, f"needs {needs}") for name, needs in ELSEWHERE.items() if name not in added]
    return rows


def command_page(
    command: Command, values: Mapping[str, Any], groups: Mapping[str, list[str]]
) -> str:
    """Everything about one command; `values`: setting -> value as composed (text)."""
    explained = field_help(command.settings())
    # a user types null; None is how the settings class spells it
    rows = [(f"{key}={values[key]}", explained[key].replace("None", "null")) for key in values]
    text = f' ["{command.text}"]' if command.text else ""
    lines = [
        f"inkling {command.name}: {command.summary}",
        "",
        f"usage: inkling {command.name}{text} [name=value ...]",
        "",
        "settings, with the values they have now:",
        *table(rows),
    ]
    if groups:
        lines += ["", "groups, each a set of values chosen by name:"]
        lines += table([(f"{name}=", " | ".join(options)) for name, options in groups.items()])
    lines += ["", "flags:", FLAGS, "", "examples:", *(f"  {line}" for line in command.examples)]
    return "\n".join(lines)


def release() -> str:
    """`inkling-core 0.1.0`, or a note that only the source tree is there."""
    try:
        return f"inkling-core {version('inkling-core')}"
    except PackageNotFoundError:
        return "inkling-core (source tree, not installed)"


def table(rows: list[tuple[str, str]], limit: int = 100) -> list[str]:
    """Two columns, the second wrapped so that no line is longer than `limit`."""
    width = min(max((len(name) for name, _ in rows), default=0), 34)
    lines = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, limit - width - 4) or [""]
        if len(name) > width:
            lines.append(f"  {name}")
            name = ""
        lines.append(f"  {name:<{width}}  {wrapped[0]}".rstrip())
        lines += [f"  {'':<{width}}  {line}" for line in wrapped[1:]]
    return lines


def _owner(point: Any) -> str:
    return point.dist.name if point.dist is not None else point.value
