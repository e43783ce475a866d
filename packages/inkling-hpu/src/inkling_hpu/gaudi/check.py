"""Compares the table of used names with an installed vllm_gaudi, by reading its source.

    uses x source tree -> list of problems      (empty: every name is there, unchanged)

The source is parsed, not imported: a check that imports would fail on the first missing name,
while this one lists all of them, costs under a second, and runs in a process without a device.

What it is not: the table (names.py) or a promise about behaviour. A function may keep its name
and parameters and do something else; the tests on a real runner are for that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

Kind = Literal["name", "call", "override", "fields", "attributes", "strings"]


@dataclass(frozen=True)
class Use:
    """One thing of vllm_gaudi that this package relies on.

    module: dotted, below vllm_gaudi. path: `Class`, `Class.method`, `function`.
    kind: what has to hold of `wanted`:
        name        the name exists (`wanted` is empty)
        call        the parameters that we pass; others must have defaults
        override    the exact parameters, because vllm_gaudi calls ours with them
        fields      annotated fields of the class
        attributes  attributes that the class assigns to `self` somewhere
        strings     text constants inside the function
    why: what breaks without it, for the refusal.
    """

    module: str
    path: str
    kind: Kind
    wanted: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"vllm_gaudi.{self.module}: {self.path}"


class SourceTree:
    """Parsed modules of a `vllm_gaudi` folder, each read at most once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._modules: dict[str, ast.Module | None] = {}

    def module(self, name: str) -> ast.Module | None:
        """The module's syntax tree; None where there is no such file."""
        if name not in self._modules:
            base = self.folder.joinpath(*name.split("."))
            files = [p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()]
            self._modules[name] = ast.parse(files[0].read_bytes()) if files else None
        return self._modules[name]

    def find(self, module: str, path: str) -> ast.stmt | None:
        """The statement that defines `path` in `module`, methods of classes included."""
        tree = self.module(module)
        scope: ast.stmt | ast.Module | None = tree
        for name in path.split("."):
            if scope is None:
                return None
            scope = next((s for s in _statements(scope) if name in _defined(s)), None)
        return scope if isinstance(scope, ast.stmt) else None


def problems(uses: Iterable[Use], tree: SourceTree) -> list[str]:
    """One line per name that is missing or changed, in the table's order."""
    return [line for use in uses for line in _problems_of(use, tree)]


def _problems_of(use: Use, tree: SourceTree) -> Iterator[str]:
    if tree.module(use.module) is None:
        yield f"{use}: the module is missing ({use.why})"
        return
    found = tree.find(use.module, use.path)
    if found is None:
        yield f"{use}: missing ({use.why})"
        return
    check = {
        "name": lambda _statement, _wanted: None,
        "call": _called,
        "override": _overridden,
        "fields": _fields,
        "attributes": _attributes,
        "strings": _strings,
    }[use.kind]
    complaint = check(found, use.wanted)
    if complaint:
        yield f"{use}: {complaint} ({use.why})"


@dataclass(frozen=True)
class _Parameters:
    """The parameters of a function, `self` and `cls` left out."""

    arguments: ast.arguments

    @cached_property
    def names(self) -> tuple[str, ...]:
        every = [*self.arguments.posonlyargs, *self.arguments.args, *self.arguments.kwonlyargs]
        return tuple(a.arg for a in every if a.arg not in ("self", "cls"))

    @cached_property
    def optional(self) -> frozenset[str]:
        positional = [*self.arguments.posonlyargs, *self.arguments.args]
        count = len(self.arguments.defaults)
        named = zip(self.arguments.kwonlyargs, self.arguments.kw_defaults, strict=True)
        return frozenset(
            [a.arg for a in positional[len(positional) - count :]]
            + [a.arg for a, default in named if default is not None]
        )

    @property
    def takes_any_keyword(self) -> bool:
        return self.arguments.kwarg is not None


def _parameters(statement: ast.stmt) -> _Parameters | None:
    """Of a function, or of a class's constructor."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _Parameters(statement.args)
    if isinstance(statement, ast.ClassDef):
        inits = [s for s in statement.body if "__init__" in _defined(s)]
        return _parameters(inits[0]) if inits else None
    return None


def _called(statement: ast.stmt, wanted: Sequence[str]) -> str | None:
    found = _parameters(statement)
    if found is None:
        return "is no function any more"
    absent = [] if found.takes_any_keyword else [w for w in wanted if w not in found.names]
    demanded = [n for n in found.names if n not in wanted and n not in found.optional]
    if absent or demanded:
        return (
            f"takes ({', '.join(found.names)}); we pass ({', '.join(wanted)}); "
            f"gone: {absent or 'none'}, newly required: {demanded or 'none'}"
        )
    return None


def _overridden(statement: ast.stmt, wanted: Sequence[str]) -> str | None:
    found = _parameters(statement)
    if found is None:
        return "is no function any more"
    if found.names != tuple(wanted):
        return f"takes ({', '.join(found.names)}); ours takes ({', '.join(wanted)})"
    return None


def _fields(statement: ast.stmt, wanted: Sequence[str]) -> str | None:
    have = {
        s.target.id
        for s in getattr(statement, "body", [])
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    }
    return _absent("fields", wanted, have)


def _attributes(statement: ast.stmt, wanted: Sequence[str]) -> str | None:
    have = {
        node.attr
        for node in ast.walk(statement)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    have |= {n for s in getattr(statement, "body", []) for n in _defined(s)}  # properties
    return _absent("attributes", wanted, have)


def _strings(statement: ast.stmt, wanted: Sequence[str]) -> str | None:
    have = {
        node.value
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return _absent("strings", wanted, have)


def _absent(what: str, wanted: Sequence[str], have: set[str]) -> str | None:
    absent = [w for w in wanted if w not in have]
    return f"{what} missing: {', '.join(absent)}" if absent else None


def _statements(scope: ast.stmt | ast.Module) -> Iterator[ast.stmt]:
    """Statements of a module or class, those under `if` and `try` included."""
    for statement in getattr(scope, "body", []):
        yield statement
        if isinstance(statement, (ast.If, ast.Try)):
            yield from _statements(statement)
            yield from statement.orelse


def _defined(statement: ast.stmt) -> set[str]:
    """The names that a statement binds in its scope."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(a.asname or a.name).split(".")[0] for a in statement.names}
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    if isinstance(statement, ast.Assign):
        return {t.id for t in statement.targets if isinstance(t, ast.Name)}
    return set()
