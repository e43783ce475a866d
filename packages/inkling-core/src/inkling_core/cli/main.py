"""`inkling`: picks the command, lets Hydra compose its settings, prints them, runs it.

Not the commands (`commands.py` says where they live) and not the composing (`compose.py`). Exit
status: 0 done, 1 the command failed or its checks did, 2 the command line or the input was wrong.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from typing import Any

from inkling_core.cli import pages, schema
from inkling_core.cli.arguments import command_line, sort_arguments
from inkling_core.cli.commands import BUILT_IN, ELSEWHERE, Command, from_packages
from inkling_core.cli.mistakes import UsageError
from inkling_core.naming import suggestion

TRACEBACK = "INKLING_TRACEBACK"
"""Any value: an error of a command shows where it came from, not its message alone."""

# What a command imports, and how to get it where it is absent.
REMEDIES = {
    "hydra": "pip install 'hydra-core>=1.3.2,<1.4'",
    "torch": "pip install torch",
    "safetensors": "pip install safetensors",
    "rich": "pip install rich",
    "tokenizers": "pip install tokenizers",
    "openai": "pip install openai",
    "vllm": "`python3 bootstrap.py demo` sets the engine up (README.md lists its traps)",
    "inkling_parsers": "pip install ./packages/inkling-parsers",
    "inkling_hpu": "pip install ./packages/inkling-hpu",
    "inkling_cuda_ref": "pip install ./packages/inkling-cuda-ref",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(pages.overview())
        return 0 if arguments else 2
    if arguments[0] in ("--version", "-V"):
        print(pages.release())
        return 0
    label = arguments[0]
    try:
        command, rest = find(arguments)
        label = command.name
        target = command if isinstance(command, Command) else command.load()
        return run(target, rest) if isinstance(target, Command) else int(target(rest) or 0)
    except UsageError as error:
        return _say(label, error, 2)
    except ModuleNotFoundError as error:
        return _say(label, _absent(error), 1)
    except (ValueError, OSError) as error:  # what the owners raise for input that cannot be used
        if os.environ.get(TRACEBACK):
            raise
        return _say(label, f"{error}\n({TRACEBACK}=1 shows where)", 2)
    except KeyboardInterrupt:
        return 130


def find(arguments: Sequence[str]) -> tuple[Command | EntryPoint, list[str]]:
    """The command (a Command, or an entry point of another package) and the arguments after its
    name.

    Raises UsageError with the near name, or with what has to be installed.
    """
    first, pair = arguments[0], " ".join(arguments[:2])
    present: dict[str, Command | EntryPoint] = {**from_packages(), **BUILT_IN}
    for name, words in ((pair, 2), (first, 1)):
        if name in present:
            return present[name], list(arguments[words:])
        if name in ELSEWHERE:
            raise UsageError(absent_command(ELSEWHERE[name]))
    names = {*present, *ELSEWHERE}
    family = [name.split()[1] for name in names if name.startswith(f"{first} ")]
    if family:
        if len(arguments) > 1 and arguments[1] not in ("--help", "-h"):
            raise UsageError(f"no command {pair!r}; {suggestion(arguments[1], family)}")
        raise UsageError(f"which one?\n{pages.family(first)}")
    known = {*names, *(name.split()[0] for name in names)}
    raise UsageError(f"no such command; {suggestion(first, known)}")


def absent_command(package: str) -> str:
    """What to do about a command that belongs to `package` and is not there."""
    try:
        return f"needs a newer {package}: {version(package)} is installed and does not have it yet"
    except PackageNotFoundError:
        return f"needs {package}: pip install ./packages/{package}"


def run(command: Command, rest: Sequence[str]) -> int:
    """Composes, prints and runs a command of the table form; returns its exit status."""
    from inkling_core.cli import compose

    groups = compose.groups(command)
    known = [*schema.field_names(command.settings()), *groups]
    sorted_ = sort_arguments(rest, known, command.text, command_line if command.shell else " ".join)
    if sorted_.help:
        config = compose.compose(command, sorted_.overrides)
        print(pages.command_page(command, _as_typed(config), groups))
        return 0
    settings = compose.settings_for(command, sorted_)
    if settings is None:
        return 0
    if hasattr(settings, "with_environment"):  # what is printed is what runs
        typed = {override.partition("=")[0].lstrip("+") for override in sorted_.overrides}
        settings = settings.with_environment(os.environ, typed)
    print(shown(command, settings), file=sys.stderr)
    with _messages_on_stderr():
        return int(command.runner()(settings) or 0)


@contextmanager
def _messages_on_stderr() -> Iterator[None]:
    """Shows what `inkling_core` says on the way: weights skipped on purpose, progress, remarks."""
    ours, handler = logging.getLogger("inkling_core"), logging.StreamHandler()
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before)


def shown(command: Command, settings: Any) -> str:
    """The resolved configuration as YAML, secrets hidden: the record of what ran."""
    from omegaconf import OmegaConf

    values = schema.public_values(settings)
    return f"# inkling {command.name}\n{OmegaConf.to_yaml(OmegaConf.create(values))}".rstrip()


def _as_typed(config: Any) -> dict[str, str]:
    """Setting -> value as it would be typed on the command line."""
    from omegaconf import OmegaConf

    words = {None: "null", True: "true", False: "false"}
    values = OmegaConf.to_container(config, resolve=False)
    return {
        str(key): words[value] if isinstance(value, bool | None) else str(value)
        for key, value in values.items()  # type: ignore[union-attr]  # a DictConfig gives a dict
    }


def _absent(error: ModuleNotFoundError) -> str:
    name = (error.name or "").partition(".")[0]
    if name in REMEDIES:
        return f"needs {name}: {REMEDIES[name]}"
    return f"needs the Python module {error.name!r}, which is not installed"


def _say(label: str, error: object, status: int) -> int:
    print(f"inkling {label}: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
