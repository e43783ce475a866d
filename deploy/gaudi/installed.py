"""What install.sh does to a Python environment, and how it is undone. Needs pip, nothing else.

    record   PREFIX/share/inkling/installed.json: distributions that were added, sums of our wheels

    install  third-party needs that are absent, under constraints; then our wheels with --no-deps
    undo     the distributions of the record, then the record

The record is written first, so that undo finds what an interrupted run left.

What it is not: a resolver. pip plans first (`--dry-run --report`); a plan that touches a
distribution of the image, or brings torch or an engine, is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from importlib.metadata import distributions
from pathlib import Path

RECORD = Path(sys.prefix) / "share" / "inkling" / "installed.json"
OURS = ("inkling-parsers", "inkling-core", "inkling-hpu")
NEEDS = (  # as in the packages' metadata, without numpy and torch, which the image has
    "hydra-core>=1.3.2,<1.4",
    "rich>=13",
    "safetensors>=0.5",
    "tokenizers>=0.20",
    "tomli>=2; python_version < '3.11'",
)
IMAGE = ("vllm-gaudi", "vllm", "torch")  # what makes it a vllm-gaudi image
NEVER = ("torch", "vllm", "vllm-gaudi", "habana-torch-plugin", "transformers", "numpy")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
# A version that may stand in a constraint. Debian's own packages have others ("1.1build1"), on
# which pip stops.
PINNABLE = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9._]+)?")


class Refused(Exception):
    """Something that the operator has to change; the text says what."""


def name_of(text: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def present() -> dict[str, str]:
    """Name -> version of every distribution of this environment, as Python finds them: the first
    on the path counts, and a half-removed one, which has no name, does not."""
    found = [(one.metadata["Name"], one.version) for one in distributions()]
    return {name_of(name): version for name, version in reversed(found) if name}


def wheels_in(folder: Path) -> dict[str, Path]:
    """Our wheels by name. Raises Refused unless there is one whole wheel of each, of one
    version."""
    found = {}
    for name in OURS:
        files = sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))
        if len(files) != 1:
            raise Refused(
                f"{len(files)} wheels of {name} in {folder}, one is needed: `nox -s wheels` makes "
                "them in dist/; --wheels names another folder"
            )
        if not zipfile.is_zipfile(files[0]):
            raise Refused(f"{files[0]} is no whole wheel: copy or build it again")
        found[name] = files[0]
    if len(versions := {file.name.split("-")[1] for file in found.values()}) > 1:
        raise Refused(
            f"wheels of {' and '.join(sorted(versions))} in {folder}: the three are of one "
            "version; `nox -s wheels` makes them"
        )
    return found


def install(folder: Path, dry: bool) -> None:
    """Brings the environment to the state that this folder of wheels asks for."""
    before = present()
    absent = [name for name in IMAGE if name not in before]
    if absent:
        raise Refused(
            f"{sys.executable} has no {', '.join(absent)}: this is no vllm-gaudi image. Start from "
            "one, or name its Python with --python"
        )
    check_writable()
    wheels = wheels_in(folder)
    sums = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in wheels.items()}
    record = read_record() or {"added": [], "wheels": {}}
    if any(name in before and name not in record["added"] for name in OURS):
        raise Refused("inkling is here already, and not by install.sh: pip uninstall it first")
    needed = plan(before)
    fresh = [n for n in OURS if n not in before or record["wheels"].get(n) != sums[n]]
    if not needed and not fresh:
        print("install.sh: nothing to do")
        return
    for line in [*needed, *(wheels[name].name for name in fresh)]:
        print(f"install.sh: {'would add' if dry else 'adds'} {line}")
    if not dry:
        added = {name_of(line.partition("==")[0]) for line in needed} | set(OURS)
        record["added"] = sorted(added | set(record["added"]))
        carry_out(record, needed, [str(wheels[name]) for name in fresh])
        write_record({**record, "wheels": sums})


def check_writable() -> None:
    """Raises Refused where pip could not write: it would fall back on the user's own folder, which
    the record does not know."""
    site = sysconfig.get_path("purelib")
    if not os.access(site, os.W_OK):
        raise Refused(f"cannot write to {site}: run install.sh as its owner, on a writable disk")


def carry_out(record: dict, needed: list[str], files: list[str]) -> None:
    """Changes the environment, after the record."""
    write_record(record)
    if needed:
        pip("install", "--no-user", "--no-deps", *needed)
    if files:
        pip("install", "--no-user", "--no-deps", "--no-index", "--force-reinstall", *files)


def plan(before: dict[str, str]) -> list[str]:
    """`name==version` of everything that our needs bring and the image lacks. Raises Refused where
    that would change the image."""
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder) / "constraints.txt", Path(folder) / "report.json"
        constraints.write_text("\n".join(pins(before)) + "\n")
        pip("install", "--dry-run", "--report", str(report), "-c", str(constraints), *NEEDS)
        planned = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    for one in planned:
        name = name_of(one["name"])
        if name in before or name in NEVER:
            raise Refused(
                f"pip would install {name} {one['version']} (here: {before.get(name, 'absent')}): "
                "the image's own must stay"
            )
    return [f"{one['name']}=={one['version']}" for one in planned]


def pins(before: dict[str, str]) -> list[str]:
    """`name==version` of everything that is there and whose version pip can read."""
    return [f"{name}=={text}" for name, text in sorted(before.items()) if PINNABLE.fullmatch(text)]


def undo(dry: bool) -> None:
    """Removes what `install` added."""
    record = read_record()
    if record is None:
        print("install.sh: nothing to undo")
        return
    here = present()
    there = [name for name in record["added"] if name in here]
    for name in there:
        print(f"install.sh: {'would remove' if dry else 'removes'} {name}")
    if dry:
        return
    if there:
        check_writable()
        pip("uninstall", "--yes", *there)
    RECORD.unlink()
    for folder in (RECORD.parent, RECORD.parent.parent):
        if not any(folder.iterdir()):
            folder.rmdir()


def read_record() -> dict | None:
    """What an earlier run wrote; None without one. Raises Refused where it cannot be read."""
    if not RECORD.is_file():
        return None
    try:
        record = json.loads(RECORD.read_text())
        return {"added": list(record["added"]), "wheels": dict(record["wheels"])}
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"{RECORD} is damaged ({error!r}), so what was added is unknown: pip uninstall "
            f"{' '.join(OURS)} and delete that file"
        ) from None


def write_record(record: dict) -> None:
    """Whole or not at all, whenever the machine stops."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    new = RECORD.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.replace(RECORD)


def pip(*arguments: str) -> None:
    """Runs pip; Refused with its last words where it fails."""
    done = subprocess.run([*PIP, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise Refused(f"pip {arguments[0]} failed:\n  {said}")


def main() -> int:
    """The command line that install.sh calls; exit status 2 for what the operator has to change."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("install", "undo"))
    parser.add_argument("--wheels", type=Path, default=Path("dist"))
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()
    try:
        if asked.action == "undo":
            undo(asked.dry_run)
        else:
            install(asked.wheels, asked.dry_run)
    except (Refused, OSError) as error:
        print(f"install.sh: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("install.sh: interrupted; run it again, or with --undo", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
