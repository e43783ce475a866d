"""Runs the mutation list: proof that the tests can fail.

    python tests/mutations/run.py [--only PREFIX] [--every N] [--jobs N] [--json FILE]

Every `*.toml` beside this file lists mutations of shipped code:

    [[mutation]]
    id = "bias-dropped"            unique
    file = "packages/..."          from the repository root
    pattern = "..."                literal text that occurs exactly once in the file
    replacement = "..."
    test = "packages/...::test"    pytest node id
    requires = "vllm"              optional: module without which the mutation is skipped, loudly

A list may open with `moves = 0.01`: the failure of each of its mutations must then report a
`max abs difference` of at least that much; a smaller one proves too little and is a fault.

`--every 2` takes the first, third, ... of each list: a fixed sample where the whole is too long.

The tree is copied, so the working tree is never touched. Each named test must pass on the copy as
it is and must fail *by assertion*, in a fresh process, with the mutation applied. Exit status 1
when a mutation survives, does not apply exactly once, or breaks the test in another way.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

if sys.version_info >= (3, 11):
    import tomllib
else:  # the repository's tools run on 3.11; the message beats an ImportError
    sys.exit("tests/mutations/run.py needs Python 3.11 or newer (tomllib)")

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("packages", "tests", "conf", "conftest.py", "pyproject.toml")
TIMEOUT_S = 300


@dataclass(frozen=True)
class Mutation:
    id: str
    file: str
    pattern: str
    replacement: str
    test: str
    requires: str | None = None
    moves: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """`verdict` is red (good), survived, small, broken or skipped; `detail` the first assertion."""

    id: str
    verdict: str
    detail: str
    test: str


def read_list(prefix: str = "", every: int = 1) -> list[Mutation]:
    """Every `every`-th mutation of each list whose id or file stem starts with `prefix`.

    Raises SystemExit where two mutations of any list share an id.
    """
    ids: list[str] = []
    found: list[Mutation] = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        document = tomllib.loads(path.read_text())
        listed = [Mutation(**one, moves=document.get("moves", 0.0)) for one in document["mutation"]]
        ids += [mutation.id for mutation in listed]
        chosen = [m for m in listed if m.id.startswith(prefix) or path.stem.startswith(prefix)]
        found += chosen[::every]
    twice = {i for i in ids if ids.count(i) > 1}
    if twice:
        raise SystemExit(f"mutation ids used twice: {sorted(twice)}")
    return found


def copy_tree(destination: Path) -> None:
    """The parts of the repository that tests read, without caches."""
    ignore = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis", "*.egg-info")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, destination / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy2(source, destination / name)


def run_test(tree: Path, test: str) -> tuple[str, str]:
    """(`passed` | `red` | `broken`, first message) of one node id in a fresh process."""
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    sources = [str(p) for p in sorted(tree.glob("packages/*/src"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    env.setdefault("OMP_NUM_THREADS", "1")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, f"--junitxml={report}", test],
            cwd=tree,
            env=env,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "broken", f"no result within {TIMEOUT_S} s"
    if not report.exists():
        return "broken", (done.stdout + done.stderr).strip().splitlines()[-1]
    return classify(report, done.returncode)


def classify(report: Path, returncode: int) -> tuple[str, str]:
    """Reads pytest's XML: failures must be assertions, errors and empty runs are not results."""
    cases = ET.parse(report).getroot().iter("testcase")
    failures = [node for case in cases for node in case if node.tag in ("failure", "error")]
    if returncode == 0:
        return "passed", ""
    if not failures:
        return "broken", f"pytest exit status {returncode} without a failing test"
    node = failures[0]
    message = (node.get("message") or "").strip()
    # Hypothesis groups several distinct failures; the text then names each of them.
    grouped = message.startswith("ExceptionGroup: Hypothesis") and "AssertionError" in str(
        node.text
    )
    by_assertion = grouped or re.match(r"(AssertionError|assert\b|Failed: |hypothesis\.)", message)
    kind = "red" if node.tag == "failure" and by_assertion else "broken"
    return kind, " ".join(message.split())[:160]


def apply(tree: Path, mutation: Mutation) -> str:
    """Edits the copy; returns the original text, or raises ValueError."""
    path = tree / mutation.file
    original = path.read_text()
    count = original.count(mutation.pattern)
    if count != 1:
        raise ValueError(f"pattern occurs {count} times in {mutation.file}, must be once")
    path.write_text(original.replace(mutation.pattern, mutation.replacement))
    return original


def try_mutation(tree: Path, mutation: Mutation) -> Outcome:
    try:
        original = apply(tree, mutation)
    except (OSError, ValueError) as error:
        return Outcome(mutation.id, "broken", str(error), mutation.test)
    try:
        kind, detail = run_test(tree, mutation.test)
    finally:
        (tree / mutation.file).write_text(original)
    verdict = "survived" if kind == "passed" else kind
    if verdict == "red" and moved(detail) < mutation.moves:
        verdict = "small"
    return Outcome(mutation.id, verdict, detail, mutation.test)


def moved(detail: str) -> float:
    """The difference that an assertion reports; 0 where it names none."""
    found = re.search(r"max abs difference (\S+)", detail)
    return float(found.group(1)) if found else 0.0


def run_all(mutations: list[Mutation], jobs: int) -> list[Outcome]:
    """Baseline of every named test first, then every mutation; `jobs` copies of the tree."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        trees: Queue[Path] = Queue()
        for number in range(jobs):
            copy_tree(Path(scratch) / str(number))
            trees.put(Path(scratch) / str(number))

        def baseline(test: str) -> Outcome | None:
            tree = trees.get()
            kind, detail = run_test(tree, test)
            trees.put(tree)
            if kind == "passed":
                return None
            return Outcome("(unmutated)", "broken", f"{kind}: {detail}", test)

        def mutate(mutation: Mutation) -> Outcome:
            tree = trees.get()
            outcome = try_mutation(tree, mutation)
            trees.put(tree)
            print(f"  {outcome.verdict:9} {outcome.id:40} {outcome.detail}", flush=True)
            return outcome

        with ThreadPoolExecutor(jobs) as pool:
            bad = [o for o in pool.map(baseline, sorted({m.test for m in mutations})) if o]
            return bad or list(pool.map(mutate, mutations))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default="", help="id prefix or list name, e.g. math")
    parser.add_argument("--every", type=int, default=1, help="a fixed sample of each list")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="also write the outcomes here")
    args = parser.parse_args()
    listed = read_list(args.only, args.every)
    whole = len(read_list(args.only))
    absent = [m for m in listed if m.requires and not importlib.util.find_spec(m.requires)]
    outcomes = run_all([m for m in listed if m not in absent], args.jobs)
    for mutation in absent:
        print(f"  skipped   {mutation.id:40} needs {mutation.requires}")
    for outcome in outcomes:
        if outcome.verdict != "red":
            print(f"FAULT {outcome.verdict}: {outcome.id}: {outcome.detail} ({outcome.test})")
    if args.json:
        args.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    red = sum(o.verdict == "red" for o in outcomes)
    left_out = whole - len(listed)
    print(f"{red} of {len(outcomes)} mutations red, {len(absent)} skipped, {left_out} not sampled")
    return 0 if outcomes and red == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
