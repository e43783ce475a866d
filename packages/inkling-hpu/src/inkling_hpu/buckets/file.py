"""Buckets as the text that vllm-gaudi reads from VLLM_BUCKETING_FROM_FILE, and how it gets there.

    (1, 256, 16)        a line each: requests, query tokens, blocks; a query of 1 is a decode

What it is not: a choice of buckets. An operator's own bucket variables win: where one is set,
nothing is written.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from inkling_hpu.buckets.generate import Buckets, generate
from inkling_hpu.buckets.profile import Profile

VARIABLE = "VLLM_BUCKETING_FROM_FILE"
_OWN_CHOICE = re.compile(
    r"VLLM_(PROMPT|DECODE)_(BS|QUERY|SEQ|CTX|BLOCK)_BUCKET_\w+"
    r"|VLLM_BUCKETING_STRATEGY|VLLM_EXPONENTIAL_BUCKETING|" + VARIABLE
)
MOST_BYTES = 2**20


def text(buckets: Buckets) -> str:
    """The file's text."""
    return "".join(f"{bucket}\n" for bucket in (*buckets.prefill, *buckets.decode))


def read(path: Path) -> Buckets:
    """Buckets of a file with one tuple of three numbers a line, `#` lines and empty ones aside.

    Raises ValueError naming the line that is none of these, or what is no text file of at most
    1 MiB.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file: name one with a bucket a line")
    with path.open("rb") as source:
        content = source.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES} bytes: no list of buckets is as long")
    prefill, decode = [], []
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        bucket = _bucket(line)
        if bucket is None:
            raise ValueError(
                f"{path}, line {number}: {line.strip()!r} is no (requests, query, blocks) of three "
                "whole numbers"
            )
        (decode if bucket[1] == 1 else prefill).append(bucket)
    return Buckets(tuple(sorted(prefill)), tuple(sorted(decode)))


def put_in_place(profile: Profile, folder: Path, environ: MutableMapping[str, str]) -> Path | None:
    """Write the profile's buckets below `folder` and name them to vllm-gaudi; None where the
    operator chose buckets. Safe to call in several processes: the name follows the content."""
    if _chosen_by_operator(environ, folder):
        return None
    content = text(generate(profile)).encode()
    path = folder / f"buckets-{hashlib.sha256(content).hexdigest()[:16]}.txt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as unfinished:
            unfinished.write(content)
        os.replace(unfinished.name, path)  # whole or not at all, whoever else writes it
    environ[VARIABLE] = str(path)
    return path


def _chosen_by_operator(environ: Mapping[str, str], folder: Path) -> bool:
    """Whether a variable of vllm-gaudi chooses buckets; a file that was put in place here does not:
    the server of another profile in this process, or in one that it starts, has its own."""
    names = {name for name in environ if _OWN_CHOICE.fullmatch(name)}
    ours = VARIABLE in names and Path(environ[VARIABLE]).parent == folder
    return bool(names - {VARIABLE} if ours else names)


def _bucket(line: str) -> tuple[int, int, int] | None:
    try:
        value = ast.literal_eval(line.strip())
    except (ValueError, SyntaxError):
        return None
    whole = isinstance(value, tuple) and all(type(number) is int for number in value)
    return value if whole and len(value) == 3 else None
