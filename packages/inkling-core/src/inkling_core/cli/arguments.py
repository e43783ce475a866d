"""Sorts the arguments after a command's name: Hydra's flags, `name=value` overrides, free text,
secrets.

Not a parser of values: Hydra's grammar reads those. This exists because "12+7=?" looks like an
override to Hydra, and because a secret must not enter a config that flags like `--cfg job` print.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from inkling_core.cli.mistakes import UsageError
from inkling_core.cli.schema import SECRETS
from inkling_core.naming import near_name

HIDDEN = "***"
SECRET_ARGUMENTS = ("--api-key", "--hf-token")  # vLLM's own that hold one
TAKES_VALUE = {"--cfg", "-c", "--package", "-p", "--info", "-i", "--config-dir", "-cd"}
CFG = ("job", "hydra", "all")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
CHOICES = {"--cfg": CFG, "-c": CFG, "--info": INFO, "-i": INFO}
BARE = {"--help", "-h", "--hydra-help", "--resolve", "--shell-completion", "-sc", "--run", "-r"}
REFUSED = {"--multirun", "-m", "--config-path", "-cp", "--config-name", "-cn"}
_KEY = re.compile(r"^(?:\+\+|\+|~)?[A-Za-z_][\w.@:/-]*$")


@dataclass
class Arguments:
    """`flags` and `overrides`: what Hydra gets, in that order (argparse wants its positional
    arguments in one run); `help`: a help page was asked for; `secrets`: values kept from Hydra."""

    flags: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    help: bool = False
    secrets: dict[str, str] = field(default_factory=dict)


def sort_arguments(
    argv: Sequence[str],
    known: Iterable[str],
    text: str | None,
    join: Callable[[Sequence[str]], str] = " ".join,
) -> Arguments:
    """Raises UsageError where an argument is none of the four kinds.

    known: names of settings and config groups; text: the setting that takes free text, or None;
    join: words -> that text.
    """
    names, out, words, rest = set(known), Arguments(), list[str](), list(argv)
    while rest:
        item = rest.pop(0)
        if item == "--":
            words, rest = words + rest, []
        elif item in ("--help", "-h"):
            out.help = True
        elif _is_flag(item, names):
            out.flags += [item, *_value_of(item, rest)]
        elif _is_override(item, names, text):
            out.overrides.append(_without_secret(item, out.secrets))
        else:
            words.append(item)
    if words and text is None:
        match = near_name(words[0], names)
        hint = f"; did you mean {match}=VALUE?" if match else " (--help lists the settings)"
        raise UsageError(f"{words[0]!r} is not `name=value`{hint}")
    if words and text is not None:
        out.overrides.append(f"{text}={quoted(join(words))}")
    return out


def command_line(words: Sequence[str]) -> str:
    """Arguments for another program as one text that a shell takes apart again, secrets hidden."""
    shown, hides = list[str](), False
    for word in words:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            hides = len(name) > 2 and _is_secret(name)
            shown.append(f"{name}={HIDDEN}" if hides and equals else word)
        else:
            shown.append(HIDDEN if hides else word)
    return shlex.join(shown)


def _is_secret(name: str) -> bool:
    """argparse takes a shortened name, and vLLM an underscore, for the whole one."""
    return any(whole.startswith(name.replace("_", "-")) for whole in SECRET_ARGUMENTS)


def _value_of(item: str, rest: list[str]) -> list[str]:
    """The value of the flag `item`, taken from `rest`; `--info` alone means all of it.

    Raises UsageError where there is none: Hydra would take the next argument for it.
    """
    flag, equals, value = item.partition("=")
    if flag not in TAKES_VALUE:
        return []
    found = [value] if equals else []
    if not equals and rest and not rest[0].startswith("-") and "=" not in rest[0]:
        found = [rest.pop(0)]
    if not found and flag in ("--info", "-i"):
        return ["all"]
    choices = CHOICES.get(flag)
    if not found or (choices and found[0] not in choices):
        wanted = f"one of {', '.join(choices)}" if choices else "a value"
        raise UsageError(f"{flag} needs {wanted}{f', not {found[0]!r}' if found else ''}")
    return [] if equals else found


def quoted(text: str) -> str:
    r"""`text` as a value of Hydra's grammar that composes to exactly `text`.

    Two layers: OmegaConf reads `${` as an interpolation unless a backslash stands before it (and
    backslashes right before that are doubled); Hydra's quotes then escape a quote and the
    backslashes before it.
    """
    literal = re.sub(r"(\\*)\$\{", lambda found: found.group(1) * 2 + r"\${", text)
    escaped = re.sub(
        r"(\\*)('|$)", lambda found: found.group(1) * 2 + ("\\'" if found.group(2) else ""), literal
    )
    return f"'{escaped}'"


def _is_flag(item: str, names: set[str]) -> bool:
    if not item.startswith("-") or item == "-":
        return False
    flag = item.split("=")[0]
    if flag in REFUSED:
        raise UsageError(f"{flag} is not supported: one command, one configuration")
    if flag in TAKES_VALUE | BARE:
        return True
    match = near_name(flag.lstrip("-").replace("-", "_"), names)
    if match:
        raise UsageError(f"{item}: settings are written without dashes: {match}=VALUE")
    match = near_name(flag, TAKES_VALUE | BARE)
    hint = f"did you mean {match}?" if match else "text that begins with a dash goes after --"
    raise UsageError(f"unknown flag {flag}; {hint}")


def _is_override(item: str, names: set[str], text: str | None) -> bool:
    """Whether `item` is `name=value`. For a command with free text a key must be known or look like
    a slip."""
    key, equals, _ = item.partition("=")
    if item.startswith("~") and _KEY.match(item):
        return True
    if not equals or not _KEY.match(key):
        return False
    head = re.split(r"[.@/]", key.lstrip("+~"))[0]
    if text is None or head in names or head == "hydra":
        return True
    # `max_tokns=5` is a slip to be told about; `x=1, y=2, x+y=?` and `e=?` are questions.
    return len(head) > 2 and not re.search(r"\s", item) and not item.endswith("?")


def _without_secret(item: str, secrets: dict[str, str]) -> str:
    key, _, value = item.partition("=")
    name = key.lstrip("+")
    if name not in SECRETS or value in ("", "null"):
        return item
    secrets[name] = value.strip("'\"")
    return f"{key}='{HIDDEN}'"
