"""Real servers for the tests of this folder: started once, shared, stopped at the session's end.

Not a mock in sight: `serve(settings)` runs in its own process with vLLM under it. Everything here
needs the serving environment; without vLLM the folder's server tests are skipped, loudly.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from inkling_core.embedded import EMBEDDED
from inkling_core.serving.settings import ServeSettings

START_SECONDS = 2400  # 35 to 80 s on an idle machine; a crowded one has taken 20 minutes
SERVE = "from inkling_core.serving import server, settings as s; server.serve(s.ServeSettings())"


POISON = 299  # token of the tiny checkpoint whose embedding is NaN
BLOCK, LIMIT = 32, 768
UNDER_LOAD: dict[str, Any] = {
    "dtype": "float32",
    "block_size": BLOCK,
    "max_model_len": LIMIT,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    # One request of 768 tokens needs 25 blocks; eight together need more, so some are preempted.
    "extra_args": ("--num-gpu-blocks-override", "30"),
    # With a share, prompts of more than a step wait their turn, and the pool hardly fills.
    "long_prefill_share": None,
}


class Answer(NamedTuple):
    """An HTTP answer: status and decoded JSON (text where it is none)."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """The error text of an OpenAI-style error body."""
        return self.body["error"]["message"]


class Server:
    """A server process on loopback, told its settings by INKLING_* variables."""

    def __init__(self, settings: ServeSettings, log: Path) -> None:
        self.settings, self.log = settings, log
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("INKLING_", "VLLM_"))}
        environ.update(settings.environment())
        environ["VLLM_ENGINE_READY_TIMEOUT_S"] = str(START_SECONDS)
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE],
                env=environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # one group, so that a kill takes the engine with it
            )

    def wait_ready(self) -> Server:
        """Until /health answers 200; AssertionError with the log's end if the process dies."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"died: {self.process.returncode}\n{self.tail()}"
            if self.port_open() and self.get("/health").status == 200:
                return self
            time.sleep(0.5)
        raise AssertionError(f"not ready after {START_SECONDS} s\n{self.tail()}")

    def wait_exit(self, seconds: float = START_SECONDS) -> int:
        """The exit status."""
        return self.process.wait(timeout=seconds)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if that does not end it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(timeout=10)

    def port_open(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.settings.port)) == 0

    def connect(self, seconds: float = 300) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.settings.port, timeout=seconds)

    def get(self, path: str) -> Answer:
        return self._ask("GET", path, None, {})

    def post(
        self, path: str, body: Any, headers: dict[str, str] | None = None, seconds: float = 300
    ) -> Answer:
        return self._ask("POST", path, body, headers or {}, seconds)

    def _ask(
        self, method: str, path: str, body: Any, headers: dict[str, str], seconds: float = 300
    ) -> Answer:
        connection = self.connect(seconds)
        try:
            text = None if body is None else json.dumps(body)
            headers = {"content-type": "application/json", **headers}
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            raw = response.read().decode()
        finally:
            connection.close()
        try:
            return Answer(response.status, json.loads(raw))
        except json.JSONDecodeError:
            return Answer(response.status, raw)

    def metric(self, name: str) -> float:
        """Sum over labels of a Prometheus metric; 0 where it is absent."""
        text = self.get("/metrics").body
        rows = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(row) for row in rows)

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """`start(port=..., ...)` makes a server process; what still runs at the end is stopped."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("NO SERVER TESTS: vLLM is not installed here; use the serving environment")
    servers: list[Server] = []

    def make(**settings: Any) -> Server:
        log = tmp_path_factory.mktemp("server") / "server.log"
        servers.append(Server(ServeSettings(**{"threads": 1, **settings}), log))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny checkpoint; the embedding row of token POISON is NaN.

    A prompt with that token computes NaN, which is how a fault inside one request is made without
    touching code.
    """
    import torch
    from safetensors.torch import load_file, save_file

    from inkling_core.weights.tiny import make_tiny

    path = tmp_path_factory.mktemp("checkpoint") / "tiny"
    shape = {"max_position_embeddings": 4096, "swa_num_key_value_heads": 4}  # global layers: 2
    make_tiny(path, shape, tokenizer=True)
    tensors = load_file(path / "model.safetensors")
    tensors["model.llm.embed.weight"][POISON] = torch.nan
    unembed_VD = tensors["model.llm.unembed.weight"]
    unembed_VD[POISON] = unembed_VD[:POISON].mean(0)  # an average logit, so it is never chosen
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


@pytest.fixture(scope="session")
def tiny_server(start: Callable[..., Server], tiny_folder: Path) -> Server:
    """One server over `tiny_folder` for load and behaviour: small pool, small chunks."""
    return start(
        checkpoint=str(tiny_folder), served_model_name="tiny", port=8113, **UNDER_LOAD
    ).wait_ready()


NANO_CHUNK = 256  # tokens per step of the server of the embedded model


@pytest.fixture(scope="session")
def nano_server(start: Callable[..., Server]) -> Server:
    """One server of the embedded model."""
    if not (EMBEDDED / "config.json").is_file():
        pytest.skip("NO NANO TESTS: the embedded checkpoint is not in this tree")
    return start(port=8118, max_model_len=4096, max_num_batched_tokens=NANO_CHUNK).wait_ready()
