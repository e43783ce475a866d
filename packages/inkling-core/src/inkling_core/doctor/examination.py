"""The checks of one kind of device, and the one for CPUs. Other packages add theirs through the
entry-point group `inkling.doctor`.

Not the checks themselves. What every device shares is added by `examine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points

from inkling_core.doctor import checkpoint, fit
from inkling_core.doctor.findings import NOT_FOUND, Finding
from inkling_core.doctor.matrix import compare, read_matrix
from inkling_core.doctor.subject import Machine, Subject

GROUP = "inkling.doctor"
GAUDI_PACKAGE = "pip install --no-deps packages/inkling-hpu from this repository"
PLUGINS = "vllm.general_plugins"

Check = Callable[[Subject], Iterable[Finding]]


@dataclass(frozen=True)
class Examination:
    """present: whether a machine has anything of this device, for `device=auto`.
    checks: in the order of the table."""

    present: Callable[[Machine], bool]
    checks: tuple[Check, ...]


def examine(subject: Subject) -> list[Finding]:
    """Every finding about a subject, in the order of the table. A check that needs a module which
    is absent is a fault of its own; no check stops the others."""
    chosen = _examination(subject)
    if chosen is None:
        found = [Finding("versions", "inkling-hpu", "fault", NOT_FOUND, GAUDI_PACKAGE)]
        checks: tuple[Check, ...] = ()
    else:
        found, checks = [], chosen.checks
    for check in (_ours, *checks, checkpoint.check, fit.port):
        found += _guarded(check, subject)
    if subject.ignored:
        names = " ".join(subject.ignored)
        found.append(Finding("settings", "other arguments", "not examined", names))
    return found


def device_of(subject: Subject) -> str:
    """`cpu` or `gaudi`: what was asked for, or what this machine looks like."""
    asked = subject.settings
    if asked.device != "auto":
        return asked.device
    if asked.backend == "hpu_emulated":
        return "gaudi"
    there = [name for name, one in installed().items() if one.present(subject.machine)]
    return there[0] if there else "cpu"


def installed() -> dict[str, Examination]:
    """Examinations of other packages, by device."""
    return {point.name: point.load() for point in entry_points(group=GROUP)}


def _examination(subject: Subject) -> Examination | None:
    device = device_of(subject)
    return CPU if device == "cpu" else installed().get(device)


def _guarded(check: Check, subject: Subject) -> Iterator[Finding]:
    from inkling_core.cli.main import REMEDIES

    try:
        yield from check(subject)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        what = getattr(check, "__name__", "check").strip("_")
        found, remedy = f"not examined: needs {name}", REMEDIES.get(name, f"pip install {name}")
        yield Finding("doctor", what, "fault", found, remedy)


def _ours(subject: Subject) -> Iterator[Finding]:
    """Our own distributions, of one version, and the plug-in that vLLM finds them by."""
    machine = subject.machine
    core = machine.version("inkling-core")
    if core is None:
        told = "this runs from a source tree; pip install packages/inkling-core: vLLM finds it so"
        yield Finding("versions", "inkling-core", "fault", NOT_FOUND, told)
        return
    for name in ("inkling-parsers", "inkling-hpu", "inkling-cuda-ref"):
        version = machine.version(name)
        if version not in (None, core):
            found = f"{version} beside inkling-core {core}"
            remedy = f"install {name} {core}: one repository, one version"
            yield Finding("versions", name, "fault", found, remedy)
    if machine.version("inkling-parsers") is None:
        remedy = "pip install packages/inkling-parsers"
        yield Finding("versions", "inkling-parsers", "fault", NOT_FOUND, remedy)
    if "inkling_core" not in machine.entry_points(PLUGINS):
        remedy = "install inkling-core again: its entry point is how vLLM knows the model"
        yield Finding("versions", "inkling-core", "fault", "no plug-in of vLLM's", remedy)
        return
    yield Finding("versions", "inkling-core", "ok", core)


def _cpu_versions(subject: Subject) -> Iterator[Finding]:
    return compare(read_matrix("inkling_core.doctor"), subject.machine)


CPU = Examination(lambda machine: True, (_cpu_versions, fit.memory, fit.settings))
