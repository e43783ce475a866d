"""Buckets as the text that vllm-gaudi reads from VLLM_BUCKETING_FROM_FILE, and how it gets there.

    (1, 256, 16)                        requests, query tokens, blocks; a query of 1 is a decode
    ([1, 2], 1, range(64, 513, 64))     a list or a range stands for a bucket of each of its values

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
from itertools import islice, product
from math import prod
from pathlib import Path

from inkling_hpu.buckets.generate import Bucket, Buckets, generate
from inkling_hpu.buckets.profile import Profile

VARIABLE = "VLLM_BUCKETING_FROM_FILE"
_OWN_CHOICE = re.compile(
    r"VLLM_(PROMPT|DECODE)_(BS|QUERY|SEQ|CTX|BLOCK)_BUCKET_\w+"
    r"|VLLM_BUCKETING_STRATEGY|VLLM_EXPONENTIAL_BUCKETING|" + VARIABLE
)
MOST_BYTES = 2**20
MOST_BUCKETS = 10_000


def text(buckets: Buckets) -> str:
    """The file's text."""
    return "".join(f"{bucket}\n" for bucket in (*buckets.prefill, *buckets.decode))


def read(path: Path) -> Buckets:
    """Buckets of a file with one tuple of three sizes a line, `#` lines and empty ones aside.

    Raises ValueError naming the line that is none of these, or what is no text file of at most
    1 MiB and 10,000 buckets.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file: name one with a bucket a line")
    with path.open("rb") as source:
        content = source.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES} bytes: no list of buckets is as long")
    found: list[Bucket] = []
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        sizes = _sizes(line.strip())
        if sizes is None:
            raise ValueError(
                f"{path}, line {number}: {line.strip()[:80]!r} is no (requests, query, blocks) of "
                "three whole numbers, lists of them, or range(first, end, step)"
            )
        if len(found) + prod(map(len, sizes)) > MOST_BUCKETS:
            raise ValueError(
                f"{path}, line {number}: more than {MOST_BUCKETS} buckets, a graph each: nobody "
                "waits for so many"
            )
        batches, queries, blocks = sizes
        found += product(batches, queries, blocks)
    found.sort()
    return Buckets(tuple(b for b in found if b[1] != 1), tuple(b for b in found if b[1] == 1))


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


def _sizes(line: str) -> list[list[int]] | None:
    """The values of each of a line's three sizes; None where it is no bucket."""
    try:
        bucket = ast.parse(line, mode="eval").body
        sizes = bucket.elts if isinstance(bucket, ast.Tuple) else []
        return [_values(size) for size in sizes] if len(sizes) == 3 else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None  # what `ast` raises, by what is wrong with the line


def _values(size: ast.expr) -> list[int]:
    """Of a whole number, a list of them, or a range with its first value and its end."""
    if isinstance(size, ast.Call) and ast.unparse(size.func) == "range" and len(size.args) > 1:
        values = list(islice(range(*map(ast.literal_eval, size.args)), MOST_BUCKETS + 1))
    else:
        value = ast.literal_eval(size)
        values = value if isinstance(value, list) else [value]
    if not values or any(type(one) is not int or one < 0 for one in values):
        raise ValueError
    return values
