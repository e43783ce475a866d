"""Which tensor lies in which file of a checkpoint folder, with everything wrong with the files.

It reads file names, the index and the headers. Whether the tensors are the right ones is `audit`'s.

Accepted: `model.safetensors.index.json` with its shards, or one `model.safetensors`. Pickles
(`.bin`, `.pt`, ...) are never opened: they run code when loaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from inkling_core.weights.header import HeaderError, StoredTensor, read_header

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
MAX_INDEX_BYTES = 64 * 1024 * 1024  # a release of 1,552 tensors has 0.13 MB
MAX_NAME_BYTES = 255  # what file systems take
SAVE_AS = "convert it to safetensors"


@dataclass
class Manifest:
    """Tensors by published name, and the problems and remarks found on the way."""

    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def read_manifest(directory: Path) -> Manifest:
    """Reads the headers of a folder. Never raises for a bad checkpoint: see `problems`."""
    manifest = Manifest()
    if not directory.is_dir():
        manifest.problems.append(f"{directory} is not a folder")
        return manifest
    names = sorted(path.name for path in directory.iterdir())
    _check_folder(names, manifest)
    if INDEX in names:
        _read_index(directory, manifest)
    elif SINGLE in names:
        manifest.tensors = _read_file(directory / SINGLE, manifest)
    else:
        _explain_no_weights(names, manifest)
    return manifest


def _check_folder(names: list[str], manifest: Manifest) -> None:
    if "config.json" not in names:
        manifest.problems.append("no config.json here: not a checkpoint folder")
    if any(name.startswith("adapter_") for name in names):
        manifest.problems.append(
            "adapter_* files: a LoRA adapter, not a model; merge it into its base model first"
        )


def _explain_no_weights(names: list[str], manifest: Manifest) -> None:
    pickles = [name for name in names if Path(name).suffix in PICKLES]
    shards = [name for name in names if name.endswith(".safetensors")]
    if pickles:
        manifest.problems.append(
            f"weights are pickles ({', '.join(pickles[:3])}), which can run code when read and are "
            f"refused; {SAVE_AS}"
        )
    elif shards:
        manifest.problems.append(
            f"{len(shards)} safetensors file(s) ({', '.join(shards[:3])}) but no {INDEX} that says "
            f"what belongs together, and no {SINGLE}"
        )
    else:
        manifest.problems.append(f"no weights: neither {INDEX} nor {SINGLE}")


def _read_index(directory: Path, manifest: Manifest) -> None:
    weight_map = _weight_map(directory / INDEX, manifest)
    files = sorted(set(weight_map.values()))
    held: dict[str, dict[str, StoredTensor]] = {}
    for name in files:
        problem = _shard_problem(directory, name, sum(f == name for f in weight_map.values()))
        if problem:
            manifest.problems.append(problem)
        else:
            held[name] = _read_file(directory / name, manifest)
    for tensor, name in weight_map.items():
        if tensor in held.get(name, {}):
            manifest.tensors[tensor] = held[name][tensor]
        elif held.get(name):  # an unreadable file has its own problem
            manifest.problems.append(f"{tensor}: {INDEX} places it in {name}, which lacks it")
    for name, tensors in held.items():
        extra = sorted(set(tensors) - set(weight_map))
        if extra:
            manifest.problems.append(
                f"{name}: holds {len(extra)} tensor(s) that {INDEX} does not list: "
                f"{', '.join(extra[:3])}"
            )
    unused = sorted(path.name for path in directory.glob("*.safetensors") if path.name not in files)
    if unused:
        manifest.remarks.append(f"not in {INDEX}, ignored: {', '.join(unused)}")


def _weight_map(path: Path, manifest: Manifest) -> dict[str, str]:
    if not path.is_file():  # a folder, a pipe that would block, a link to nowhere or to itself
        manifest.problems.append(f"{INDEX}: no regular file")
        return {}
    size = path.stat().st_size
    if size > MAX_INDEX_BYTES:
        manifest.problems.append(f"{INDEX}: {size:,} bytes, at most {MAX_INDEX_BYTES:,}")
        return {}
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        if not all(isinstance(name, str) for name in weight_map.values()):
            raise TypeError("weight_map must map names to file names")
        if not weight_map:
            raise ValueError("weight_map is empty")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        manifest.problems.append(f"{INDEX}: no usable weight_map ({error!r})")
        return {}
    return weight_map


def _shard_problem(directory: Path, name: str, count: int) -> str | None:
    if Path(name).name != name:
        return f"{INDEX}: {name!r} is outside the folder"
    if Path(name).suffix in PICKLES:
        return f"{INDEX}: {name} is a pickle, which can run code when read; {SAVE_AS}"
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES:
        return f"{INDEX}: {name[:40]!r}... is too long for a file name"
    if not (directory / name).is_file():
        return f"{name}: missing, though {INDEX} places {count} tensor(s) in it"
    return None


def _read_file(path: Path, manifest: Manifest) -> dict[str, StoredTensor]:
    try:
        return read_header(path)
    except HeaderError as error:
        manifest.problems += error.problems
        return {}
