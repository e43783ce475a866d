"""The checkpoint on disk: every file that its index names, their sizes, and the right tensors.

Not a reader: `inkling_core.weights` finds the faults, from headers alone. Files come first: where a
shard is missing, the tensors that it held are not listed one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from inkling_core.config import ConfigError, InklingConfig
from inkling_core.doctor.findings import Finding
from inkling_core.doctor.subject import Subject
from inkling_core.embedded import checkpoint_folder
from inkling_core.weights.errors import CheckpointError
from inkling_core.weights.manifest import INDEX, Manifest, read_manifest

PART = "checkpoint"
SHOWN = 20
AGAIN = "fetch the files named here again, and compare their sizes with the release's"


def check(subject: Subject) -> Iterator[Finding]:
    """Findings about the folder of the settings; a sound one is one line."""
    try:
        folder = checkpoint_folder(subject.settings.checkpoint)
        config = InklingConfig.from_checkpoint(folder)
    except FileNotFoundError as error:
        found, _, remedy = str(error).partition("; ")
        yield Finding(PART, "folder", "fault", found, remedy or "name a checkpoint folder")
        return
    except ConfigError as error:
        for problem in error.problems:
            found = f"{problem.key}: {problem.message}"
            yield Finding(PART, "config.json", "fault", found, problem.remedy)
        return
    manifest = read_manifest(folder)
    problems = manifest.problems or _tensor_problems(folder, config)
    yield from _faults(problems)
    yield from _size(folder, manifest)
    if not problems:
        size = sum(one.num_bytes for one in manifest.tensors.values())
        yield Finding(
            PART, "weights", "ok", f"{len(manifest.tensors)} tensors, {size:,} B in {folder}"
        )


def config_of(subject: Subject) -> InklingConfig | None:
    """The configuration, for checks that need one; None where `check` has said why not."""
    try:
        return InklingConfig.from_checkpoint(checkpoint_folder(subject.settings.checkpoint))
    except (FileNotFoundError, ConfigError):
        return None


def _tensor_problems(folder: Path, config: InklingConfig) -> list[str]:
    from inkling_core.weights.audit import validate

    try:
        validate(folder, config)
    except CheckpointError as error:
        return list(error.problems)
    return []


def _faults(problems: list[str]) -> Iterator[Finding]:
    for problem in problems[:SHOWN]:
        what, colon, found = problem.partition(": ")
        yield Finding(PART, what if colon else "weights", "fault", found or problem, AGAIN)
    if len(problems) > SHOWN:
        more = f"{len(problems) - SHOWN} more of the kind"
        yield Finding(PART, "weights", "fault", more, AGAIN)


def _size(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    """The index's own sum, where it gives one, against what the shards hold."""
    wanted = _total_size(folder / INDEX)
    held = sum(one.num_bytes for one in manifest.tensors.values())
    if wanted is None or wanted == held:
        return
    state = "fault" if held < wanted else "warning"
    found = f"the index counts {wanted:,} B of tensors, the shards that are here hold {held:,} B"
    yield Finding(PART, INDEX, state, found, AGAIN)


def _total_size(index: Path) -> int | None:
    """`metadata.total_size`; None without one. What is wrong with the index itself is the
    manifest's."""
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None
