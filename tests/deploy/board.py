"""The board of deploy/gaudi as its tests see it: its panels and its queries.

    python tests/deploy/board.py --out DIR     a real server on a CPU, a real Prometheus over it,
                                               every query of the board answered; DIR/board.png

What it is not: Grafana, which was not at hand. The picture is Prometheus' own page with some of the
board's queries on it. Needs `prometheus` on the path, and `chromium` for the picture.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GAUDI = ROOT / "deploy" / "gaudi"
BOARD = GAUDI / "grafana" / "dashboards" / "inkling.json"
WINDOW = "1m"  # what Grafana's $__rate_interval becomes
NOT_ON_A_CPU = frozenset({"inkling:warmup_seconds", "inkling:warmup_graphs"})
SHOWN = ("Queue", "Time to first token", "Inter-token time", "Conv rows")  # the last query of each
SYSTEM = "Keep these in mind: " + " ".join(f"box {n} has key {n * 37 % 101}." for n in range(50))


def panels() -> list[dict]:
    """The board's panels."""
    return json.loads(BOARD.read_text())["panels"]


def queries() -> list[tuple[str, str]]:
    """Title of the panel and query in Prometheus' language, for every query of the board."""
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", WINDOW))
        for panel in panels()
        for target in panel["targets"]
    ]


def names(query: str) -> set[str]:
    """Metrics that a query reads."""
    return set(re.findall(r"\b(?:vllm|inkling):[a-z0-9_]+", query))


def absent_on_cpu(query: str) -> bool:
    """Whether a server on a CPU has nothing to answer."""
    return bool(names(query) & NOT_ON_A_CPU)


@contextlib.contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program for the length of a block; its output goes to `log`."""
    with log.open("w") as out:
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield running
        finally:
            running.terminate()
            running.wait(timeout=90)


def wait_for(url: str, running: subprocess.Popen[bytes], log: Path, seconds: float = 1200) -> None:
    """Until `url` answers. RuntimeError with the log's end where the program dies."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and running.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.5)
    raise RuntimeError(f"{url} does not answer:\n{log.read_text()[-2000:]}")


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def load(url: str, seconds: float, streams: int = 12) -> int:
    """Chats with one long system message from `streams` threads; returns how many were answered."""
    answered, deadline = [0] * streams, time.monotonic() + seconds

    def ask(stream: int) -> None:
        while time.monotonic() < deadline:
            number = 10 + (answered[stream] * 7 + stream) % 80
            messages = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"{number}+{99 - number}=?"},
            ]
            body = json.dumps({"messages": messages, "max_tokens": 48}).encode()
            headers = {"content-type": "application/json"}
            request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
            with urllib.request.urlopen(request, timeout=300) as answer:
                answer.read()
            answered[stream] += 1

    threads = [threading.Thread(target=ask, args=(stream,)) for stream in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(answered)


def value(prometheus: str, query: str, at: float) -> float | None:
    """The answer, at a time, to a query that gives one number; None where there is no data."""
    words = urllib.parse.urlencode({"query": query, "time": at})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query?{words}", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    return float(result[0]["value"][1]) if result else None


def report(prometheus: str, answered: int, at: float) -> list[str]:
    """Prints each query with its answer; returns the queries whose answer is not as it should."""
    print(f"{answered} chats answered")
    bad = []
    for title, query in queries():
        found = value(prometheus, query, at)
        there = found is not None and math.isfinite(found)
        right = found is None if absent_on_cpu(query) else there
        bad += [] if right else [query]
        shown = "no data" if found is None else f"{found:.4g}"
        print(f"{'ok ' if right else 'BAD'} {title}: {shown}   {query}")
    return bad


def picture(prometheus: str, out: Path) -> None:
    """Prometheus' own page with some of the board's queries, as an image."""
    asked = list({title: query for title, query in queries() if title in SHOWN}.values())
    words = {}
    for n, query in enumerate(asked):
        words |= {f"g{n}.expr": query, f"g{n}.tab": "0", f"g{n}.range_input": "3m"}
    page = f"{prometheus}/graph?{urllib.parse.urlencode(words)}"
    subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--virtual-time-budget=20000", f"--window-size=900,{800 * len(asked)}"),
            *(f"--screenshot={out}", page),
        ],
        check=True,
        capture_output=True,
        timeout=180,
    )


def run(out: Path, seconds: float) -> bool:
    """Server, Prometheus, load, answers, picture; whether every answer is as it should."""
    port, own = free_port(), free_port()
    server, prometheus = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{own}"
    config = out / "prometheus.yml"
    text = (GAUDI / "prometheus.yml").read_text()
    config.write_text(text.replace("inkling:8000", f"127.0.0.1:{port}").replace("5s", "2s"))
    serve = [sys.executable, "-m", "inkling_core.cli.main", "serve", f"port={port}"]
    scrape = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={out / 'tsdb'}"),
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with (
        process([*serve, "max_num_seqs=4", "threads=1"], out / "serve.log") as running,
        process(scrape, out / "prometheus.log") as scraping,
    ):
        wait_for(f"{server}/health", running, out / "serve.log")
        wait_for(f"{prometheus}/-/ready", scraping, out / "prometheus.log", 60)
        answered = load(server, seconds)
        bad = report(prometheus, answered, time.time() - 10)  # while all streams still ran
        if shutil.which("chromium"):
            picture(prometheus, out / "board.png")
    return not bad


def main() -> int:
    """Runs everything; status 1 where a query has no answer that should have one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for logs and picture")
    parser.add_argument("--seconds", type=float, default=90, help="how long there is load")
    asked = parser.parse_args()
    if shutil.which("prometheus") is None:
        raise SystemExit("no `prometheus` on the path: apt-get install prometheus")
    out = asked.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return int(not run(out, asked.seconds))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
