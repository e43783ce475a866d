"""Writes the reference pages out of the code; they are never written by hand.

    python docs/generate.py                  write docs/reference/*.md
    python docs/generate.py --check          1 where a committed page is not what would be written
    python docs/generate.py --record URL     docs/metrics.json out of a running server's /metrics

    config.md    every command's settings, and the options of conf/
    env.md       every INKLING_* variable of the packages
    metrics.md   what a served process exports (docs/metrics.json; a server test compares it)
    cli.md       every command's --help

Needs all packages installed, for their commands; no torch.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import io
import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from inkling_core.cli import compose
from inkling_core.cli.commands import composed, from_packages
from inkling_core.cli.main import main as inkling
from inkling_core.cli.schema import field_help
from inkling_core.cli.settings import REQUIRED
from inkling_core.serving.metrics import GAUGES
from inkling_core.serving.settings import PREFIX, ServeSettings
from inkling_hpu.emulation.settings import PREFIX as EMULATED
from inkling_hpu.emulation.settings import EmulationSettings
from inkling_hpu.switches import VARIABLES, Switches

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
METRICS = ROOT / "docs" / "metrics.json"
MARK = "<!-- Written by docs/generate.py: change the code, not this page. -->"
CONFIG = """\
A command's settings are typed `name=value`. What is typed wins over a group's option
(`profile=latency`), which wins over the defaults below. `--cfg job` prints the result without
running it, `--info defaults` where each part comes from. A setting of `inkling serve` can also come
from the [environment](env.md)."""
ENVIRONMENT = """\
Each table but the last is one settings object: a parent process writes these variables for its
workers, which read them."""
SERVER = """\
A variable set by hand does what the setting of `inkling serve` does; one that contradicts a value
that was typed, or chosen through a group, is refused."""
METRICS_OF = """\
`GET /metrics` answers in Prometheus' format, on the server's own port. The list was recorded from
`inkling serve` on a CPU (vLLM {vllm}) after a chat; a server test compares it with a running
server. A histogram has `_bucket`, `_sum` and `_count`. The metrics of the Python process are left
out."""
OURS = re.compile(r"(?:vllm:|inkling:|http_)")  # of a Python process's own metrics, none


def config() -> str:
    """Settings of every command, then the options of every group."""
    lines = [CONFIG]
    groups: dict[tuple[str, str], list[str]] = {}
    shown: dict[type, str] = {}
    for name, command in composed().items():
        settings, chosen = command.settings(), compose.groups(command)
        lines += ["", f"## inkling {name}", ""]
        if chosen:
            lines += [f"Groups: {', '.join(f'[{group}](#{group})' for group in chosen)}.", ""]
        base = next((one for one in shown if one in settings.__mro__[1:]), None)
        if base:
            other = shown[base]
            lines += [f"The settings of [inkling {other}](#inkling-{other}), and:", ""]
        lines += _settings(settings, base)
        shown[settings] = name
        groups |= {(group, command.conf): options for group, options in chosen.items()}
    for (group, conf), options in groups.items():
        lines += ["", f"## {group}", ""]
        rows = [_option(conf, group, option) for option in options]
        lines += _table((f"`{group}=`", "sets", ""), rows)
    return _page("Configuration", lines)


def _settings(settings: type, base: type | None) -> list[str]:
    """The table of a settings class, without the fields of `base`."""
    known = {field.name for field in dataclasses.fields(base)} if base else set()
    explained = field_help(settings)
    rows = [
        (
            f"`{f.name}`",
            f"`{f.type.replace(' | None', ' or null')}`",
            _typed(f.default),
            explained[f.name].replace("None", "null"),
        )
        for f in dataclasses.fields(settings)
        if f.name not in known
    ]
    return _table(("setting", "type", "default", ""), rows)


def _option(conf: str, group: str, option: str) -> tuple[str, str, str]:
    """Name, values and comment of an option's YAML file."""
    text = (resources.files(conf) / group / f"{option}.yaml").read_text()
    comment = next(line[2:] for line in text.splitlines() if not line.startswith("# @package"))
    values = [line for line in text.splitlines() if line and not line.startswith("#")]
    return f"`{option}`", ", ".join(f"`{value.replace(': ', '=')}`" for value in values), comment


def env() -> str:
    """Variables of the settings objects, then the switches that are constants."""
    served = {f.name: PREFIX + f.name.upper() for f in dataclasses.fields(ServeSettings)}
    emulated = {f.name: EMULATED + f.name.upper() for f in dataclasses.fields(EmulationSettings)}
    switches = {VARIABLES[f.name]: f.name for f in dataclasses.fields(Switches)}
    lines = [
        ENVIRONMENT,
        "",
        "## Server",
        "",
        SERVER,
        "",
        *_variables(ServeSettings, {served[name]: name for name in served}, {}),
        "",
        "## Gaudi",
        "",
        *_variables(Switches, switches, Switches().environment()),
        "",
        "## Emulated Gaudi",
        "",
        *_variables(
            EmulationSettings,
            {emulated[name]: name for name in emulated},
            EmulationSettings().environment(),
        ),
        "",
        "## Switches",
        "",
        *_table(("variable", ""), sorted(_constants())),
    ]
    return _page("Environment", lines)


def _variables(settings: type, names: dict[str, str], written: dict[str, str]) -> list[str]:
    """names: variable -> field; written: defaults as the object writes them."""
    explained = field_help(settings)
    defaults = {f.name: f.default for f in dataclasses.fields(settings)}
    rows = []
    for variable, name in names.items():
        unset = defaults[name] in (None, ())
        default = (
            "unset" if unset else f"`{written[variable]}`" if written else _typed(defaults[name])
        )
        rows.append((f"`{variable}`", default, explained[name].replace("None", "unset")))
    return _table(("variable", "default", ""), rows)


def _constants() -> Iterator[tuple[str, str]]:
    """(variable, its docstring) of every module constant that names a whole variable."""
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
            value = statement.value if isinstance(statement, ast.Assign) else None
            name = value.value if isinstance(value, ast.Constant) else None
            if not isinstance(name, str) or not re.fullmatch(r"INKLING_\w*[A-Z0-9]", name):
                continue
            text = following.value if isinstance(following, ast.Expr) else None
            if not isinstance(text, ast.Constant):
                raise SystemExit(f"{path}:{statement.lineno}: explain {name} in a string below it")
            yield f"`{name}`", " ".join(str(text.value).split())


def metrics() -> str:
    """The recorded families, and our gauges that a CPU has nothing to say about."""
    recorded = json.loads(METRICS.read_text())
    rows = [(f"`{row['name']}`", row["type"], row["help"]) for row in recorded["metrics"]]
    there = {row["name"] for row in recorded["metrics"]}
    rows += [
        (f"`{name}`", "gauge", f"{text} On a Gaudi only.")
        for name, text in GAUGES.items()
        if name not in there
    ]
    return _page(
        "Metrics",
        [METRICS_OF.format(vllm=recorded["vllm"]), "", *_table(("metric", "type", ""), rows)],
    )


def exported() -> set[str]:
    """Names of all metrics: those recorded on a CPU and our own."""
    return {row["name"] for row in json.loads(METRICS.read_text())["metrics"]} | set(GAUGES)


def families(exported: str) -> list[dict[str, str]]:
    """Name, type and help of each metric in a /metrics answer; creation times left out."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", exported, re.MULTILINE))
    kinds = re.findall(r"^# TYPE (\S+) (\S+)$", exported, re.MULTILINE)
    return [
        {"name": name, "type": kind, "help": helps[name]}
        for name, kind in sorted(kinds)
        if OURS.match(name) and not name.endswith("_created")
    ]


def record(url: str) -> None:
    """Writes docs/metrics.json."""
    found = []
    for path in ("metrics", "version"):
        with urllib.request.urlopen(f"{url}/{path}", timeout=30) as answer:
            found.append(answer.read().decode())
    document = {"vllm": json.loads(found[1])["version"], "metrics": families(found[0])}
    METRICS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def cli() -> str:
    """The overview and every command's page, as they are printed."""
    commands = sorted({*composed(), *from_packages()})
    lines = ["## inkling", "", *_help(["--help"])]
    for name in commands:
        lines += ["", f"## inkling {name}", "", *_help([*name.split(), "--help"])]
    return _page("Command line", lines)


def _help(arguments: list[str]) -> list[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        inkling(arguments)
    return ["```text", printed.getvalue().rstrip(), "```"]


def _typed(default: Any) -> str:
    """A default as it is typed on the command line."""
    if default == REQUIRED:
        return "required"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if default == "":
        return "empty"
    word = "null" if default is None else "[]" if default == () else default
    return f"`{word}`"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    cells = [tuple(cell.replace("|", "\\|") for cell in row) for row in [head, *rows]]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in cells]
    return [lines[0], f"|{'---|' * len(head)}", *lines[1:]]


def _page(title: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", "", MARK, "", *lines]) + "\n"


GENERATED = {"config": config, "env": env, "metrics": metrics, "cli": cli}


def stale() -> list[str]:
    """Names of pages whose committed text is not what the code says."""
    return [
        name
        for name, make in GENERATED.items()
        if not (PAGES / f"{name}.md").exists() or (PAGES / f"{name}.md").read_text() != make()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the reference pages out of the code.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 where a page is stale"
    )
    parser.add_argument("--record", metavar="URL", help="record the metrics of a running server")
    options = parser.parse_args()
    os.environ["COLUMNS"] = "100"  # argparse wraps by it
    if options.record:
        record(options.record)
    if options.check:
        old = stale()
        print(
            "\n".join(f"docs/reference/{name}.md is stale: python docs/generate.py" for name in old)
        )
        return int(bool(old))
    for name, make in GENERATED.items():
        (PAGES / f"{name}.md").write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
