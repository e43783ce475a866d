"""A bundle: cases with their answers as one back end gave them, in a folder that travels.

    bundle.safetensors   `CASE/in/NAME` and `CASE/out/NAME`
    manifest.json        what made it (versions, device), the cases, the checksum of the tensors

Not a comparison (`check`). Inputs travel too, so a back end elsewhere is asked the same question
whatever its random generator draws.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from inkling_core.parity.cases import OpCase

FORMAT = 1
TENSORS, MANIFEST = "bundle.safetensors", "manifest.json"
VERSIONS = ("torch", "triton", "inkling-core", "inkling-cuda-ref", "inkling-hpu")


@dataclass(frozen=True)
class Bundle:
    """Cases, the named answers of each, and the manifest that tells where they come from."""

    cases: tuple[OpCase, ...]
    answers: Mapping[str, Mapping[str, Tensor]]
    manifest: Mapping[str, Any]

    @property
    def source(self) -> str:
        """`float64 on cpu`: who answered, for titles."""
        return f"{self.manifest['backend']} on {self.manifest['device']}"


def device_name(device: torch.device | None) -> str:
    """What the device calls itself."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "cpu" if device is None else device.type


def write(
    folder: Path,
    cases: Sequence[OpCase],
    answers: Mapping[str, Mapping[str, Tensor]],
    backend: str,
    device: str,
) -> None:
    """Writes a bundle into `folder`, made if needed; files of the same names are replaced."""
    tensors = {f"{c.id}/in/{name}": t for c in cases for name, t in c.tensors.items()}
    tensors |= {f"{c.id}/out/{name}": t for c in cases for name, t in answers[c.id].items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.cpu().contiguous() for name, t in tensors.items()}, folder / TENSORS)
    (folder / TENSORS).chmod(0o644)  # safetensors leaves it to its owner alone
    manifest = {
        "format": FORMAT,
        "backend": backend,
        "device": device,
        "versions": {"python": platform.python_version(), **_versions()},
        "sha256": _checksum(folder / TENSORS),
        "cases": [
            {
                "id": c.id,
                "op": c.op,
                "dtype": str(c.dtype).removeprefix("torch."),
                "seed": c.seed,
                "values": c.values,
            }
            for c in cases
        ],
    }
    text = json.dumps(manifest, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> Bundle:
    """The bundle of a folder.

    Raises:
        ValueError: it is none, of another format, or its tensors are not those of the manifest.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"bundle={folder}: no {MANIFEST} in it; `inkling parity dump` writes one")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    if manifest.get("format") != FORMAT:
        raise ValueError(
            f"{path}: format {manifest.get('format')}, this version reads {FORMAT}: dump it again"
        )
    found = _checksum(folder / TENSORS)
    if found != manifest["sha256"]:
        raise ValueError(
            f"{folder / TENSORS}: sha256 {found[:12]}..., the manifest says "
            f"{manifest['sha256'][:12]}...: the file was changed or cut; fetch or dump it again"
        )
    cases, answers, tensors = [], {}, load_file(folder / TENSORS)
    for row in manifest["cases"]:
        inputs = _under(tensors, f"{row['id']}/in/")
        answers[row["id"]] = _under(tensors, f"{row['id']}/out/")
        dtype = getattr(torch, row["dtype"])
        cases.append(OpCase(row["id"], row["op"], dtype, row["seed"], inputs, row["values"]))
    return Bundle(tuple(cases), answers, manifest)


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
