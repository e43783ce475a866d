"""Installed versions against a support matrix held as data.

    [[component]]  a distribution: names, whether a server needs it, how to get it
    [[stack]]      versions that belong together: of the key component, and of the others
    [[unwanted]]   a distribution whose mere presence breaks the start

A stack says its state (verified, not verified), the date, and what it ran on. Versions compare by
release segments: "1.24" in the matrix stands for 1.24.0.461, "2.13.0" for 2.13.0+cpu.

What it is not: a resolver, or a claim about versions that no row names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from inkling_core.doctor.findings import NOT_FOUND, Finding
from inkling_core.doctor.subject import Machine

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PART = "versions"
VERIFIED = "verified"


@dataclass(frozen=True)
class Component:
    """name: how the table calls it. names: distributions that provide it. needed: a server does not
    start without it. remedy: how to get it."""

    name: str
    names: tuple[str, ...]
    needed: bool
    remedy: str


@dataclass(frozen=True)
class Stack:
    """Versions that belong together.

    key: version of the key component. state, date, on: whether it ran, when, on what. needs:
    component -> version it cannot do without; prefers: the same, where others may stand in.
    """

    key: str
    state: str
    date: str
    on: str
    needs: Mapping[str, str]
    prefers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.state}, {self.date}, on {self.on}"


@dataclass(frozen=True)
class Matrix:
    """key: name of the component that stacks are chosen by. data: the rest of the file."""

    key: str
    components: tuple[Component, ...]
    stacks: tuple[Stack, ...]
    unwanted: tuple[Mapping[str, str], ...]
    data: Mapping[str, Any]

    def stack(self, version: str) -> Stack | None:
        """The row for this version of the key component; None where there is none."""
        return next((row for row in self.stacks if agrees(version, row.key)), None)


def read_matrix(package: str, file: str = "support.toml") -> Matrix:
    """The matrix that ships in `package`."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    data = tomllib.loads(text)
    components = tuple(
        Component(row["name"], tuple(row["distributions"]), row["needed"], row["remedy"])
        for row in data["component"]
    )
    stacks = tuple(
        Stack(
            row["version"],
            row["state"],
            str(row["date"]),
            row["on"],
            row.get("needs", {}),
            row.get("prefers", {}),
        )
        for row in data["stack"]
    )
    return Matrix(data["key"], components, stacks, tuple(data.get("unwanted", ())), data)


def agrees(version: str, row: str) -> bool:
    """Whether `version` begins with the segments of `row`: 1.24.0.461 with 1.24, not 1.240."""
    wanted, found = _segments(row), _segments(version)
    return found[: len(wanted)] == wanted


def compare(matrix: Matrix, machine: Machine) -> Iterator[Finding]:
    """One finding per component, and per unwanted distribution that is there."""
    versions = {one.name: machine.version(*one.names) for one in matrix.components}
    key = versions[matrix.key]
    stack = None if key is None else matrix.stack(key)
    for component in matrix.components:
        version = versions[component.name]
        if version is None:
            yield _absent(component)
        elif component.name == matrix.key:
            yield _key(matrix, version, stack)
        else:
            yield _beside(matrix, component, version, key, stack)
    for row in matrix.unwanted:
        version = machine.version(row["distribution"])
        if version is not None:
            yield Finding(
                PART, row["distribution"], "warning", f"{version}: {row['reason']}", row["remedy"]
            )


def _absent(component: Component) -> Finding:
    state = "fault" if component.needed else "not examined"
    return Finding(PART, component.name, state, NOT_FOUND, component.remedy)


def _key(matrix: Matrix, version: str, stack: Stack | None) -> Finding:
    if stack is not None and stack.state == VERIFIED:
        return Finding(PART, matrix.key, "ok", f"{version} ({stack})")
    run = ", ".join(row.key for row in matrix.stacks if row.state == VERIFIED)
    told = "in no row of the support matrix" if stack is None else str(stack)
    remedy = f"install one that was run ({run}), or trust it only after `inkling gates`"
    return Finding(PART, matrix.key, "warning", f"{version} ({told})", remedy)


def _beside(
    matrix: Matrix, component: Component, version: str, key: str | None, stack: Stack | None
) -> Finding:
    """A component beside the key one: held to the stack's version where it names one."""
    needs = {} if stack is None else stack.needs
    wanted = {**({} if stack is None else stack.prefers), **needs}.get(component.name)
    if wanted is None or agrees(version, wanted):
        return Finding(PART, component.name, "ok", version)
    together = f"{version}, but {matrix.key} {key} goes with {component.name} {wanted}"
    state = "fault" if component.name in needs else "warning"
    remedy = f"install {component.name} {wanted}: {component.remedy}"
    return Finding(PART, component.name, state, together, remedy)


def _segments(version: str) -> list[str]:
    """Release segments, with a pre-release or development mark as one of its own."""
    return re.findall(r"\d+|[a-z]+", version.partition("+")[0].lower())
