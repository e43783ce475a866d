"""The board of deploy/gaudi as its tests see it: its panels and its queries.

    python tests/deploy/board.py --out DIR     a real server on a CPU, a real Prometheus over it,
                                               every query of the board answered; DIR/board.png

What it is not: Grafana, which was not at hand. The picture has the board's panels where the board
has them, with what Prometheus answered. Needs `prometheus` on the path, and matplotlib.
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
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GAUDI = ROOT / "deploy" / "gaudi"
BOARD = GAUDI / "grafana" / "dashboards" / "inkling.json"
WINDOW = "1m"  # what Grafana's $__rate_interval becomes
NOT_ON_A_CPU = frozenset({"inkling:warmup_seconds", "inkling:warmup_graphs"})
STEP = 2  # seconds between two samples
SYSTEM = "Keep these in mind: " + " ".join(f"box {n} has key {n * 37 % 101}." for n in range(50))


def panels() -> list[dict]:
    """The board's panels."""
    return json.loads(BOARD.read_text())["panels"]


def asked(target: dict) -> str:
    """A panel's query in Prometheus' language."""
    return target["expr"].replace("$__rate_interval", WINDOW)


def queries() -> list[tuple[str, str]]:
    """Title of the panel and query, for every query of the board."""
    return [(panel["title"], asked(one)) for panel in panels() for one in panel["targets"]]


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


def answer(prometheus: str, kind: str, **words: object) -> list[dict]:
    """Prometheus' answer, one series each; a query of the board gives one or none."""
    url = f"{prometheus}/api/v1/{kind}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(url, timeout=30) as page:
        return json.load(page)["data"]["result"]


def value(prometheus: str, query: str, at: float) -> float | None:
    """The answer to a query at a time; None where there is no data."""
    result = answer(prometheus, "query", query=query, time=at)
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


def picture(prometheus: str, out: Path, began: float, ended: float) -> None:
    """Every panel of the board over the run, as an image."""
    from matplotlib.figure import Figure

    places = [panel["gridPos"] for panel in panels()]
    rows = max(place["y"] + place["h"] for place in places)
    figure = Figure(figsize=(12, 0.3 * rows), dpi=100, layout="constrained")
    grid = figure.add_gridspec(rows, 24)
    for panel, place in zip(panels(), places, strict=True):
        x, y, w, h = (place[side] for side in "xywh")
        axes = figure.add_subplot(grid[y : y + h, x : x + w])
        axes.set_title(panel["title"], loc="left", fontweight="bold")
        for target in panel["targets"]:
            span = {"start": began, "end": ended, "step": STEP}
            for series in answer(prometheus, "query_range", query=asked(target), **span):
                times, values = zip(*series["values"], strict=True)
                seconds = [float(time) - began for time in times]
                axes.plot(seconds, [float(one) for one in values], label=target["legendFormat"])
        finish(axes, panel["fieldConfig"]["defaults"]["unit"], ended - began)
    figure.savefig(out)


def finish(axes: Any, unit: str, seconds: float) -> None:
    """Axes and legend of a panel; says so where nothing was answered."""
    axes.set_xlim(0, seconds)
    axes.set_xlabel("seconds of load")
    axes.grid(alpha=0.3)
    if not axes.lines:
        axes.text(0.5, 0.5, "no data: not on a CPU", ha="center", transform=axes.transAxes)
        axes.set_yticks([])
        return
    axes.set_ylim(bottom=0)
    if unit == "percentunit":
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.3g} %")
    elif unit == "s":
        axes.set_ylabel("seconds")
    axes.legend(loc="best")


def run(out: Path, python: str, seconds: float) -> bool:
    """Server, Prometheus, load, answers, picture; whether every answer is as it should."""
    port, own = free_port(), free_port()
    server, prometheus = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{own}"
    config = out / "prometheus.yml"
    text = (GAUDI / "prometheus.yml").read_text()
    config.write_text(text.replace("inkling:8000", f"127.0.0.1:{port}").replace("5s", f"{STEP}s"))
    serve = [python, "-m", "inkling_core.cli.main", "serve", f"port={port}"]
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
        began = time.time()
        answered = load(server, seconds)
        ended = began + seconds  # all streams still ran
        bad = report(prometheus, answered, ended)
        picture(prometheus, out / "board.png", began, ended)
    return not bad


def main() -> int:
    """Runs everything; status 1 where a query has no answer that should have one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for logs and picture")
    parser.add_argument("--seconds", type=float, default=90, help="how long there is load")
    parser.add_argument("--python", default=sys.executable, help="one with vLLM, for the server")
    given = parser.parse_args()
    if shutil.which("prometheus") is None:
        raise SystemExit("no `prometheus` on the path: apt-get install prometheus")
    out = given.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return int(not run(out, given.python, given.seconds))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
