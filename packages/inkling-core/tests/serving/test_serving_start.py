"""How a server starts, refuses to start, asks for its key, and stops. Real processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from inkling_core.weights.tiny import make_tiny

pytestmark = pytest.mark.server


def truncated(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def misnamed(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["d_rell"] = config["text_config"].pop("d_rel")
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "needle"), [(truncated, "model.safetensors"), (misnamed, "d_rell")]
)
def test_broken_checkpoint_exits_before_the_port_opens(damage, needle, start, tmp_path):
    folder = tmp_path / "broken"
    make_tiny(folder, tokenizer=True)
    damage(folder)
    server = start(checkpoint=str(folder), port=8114)
    assert server.wait_exit() != 0
    assert needle in server.tail()
    assert "vLLM API server" not in server.log.read_text(), "vLLM was started"


@pytest.mark.parametrize(
    ("change", "needles"),
    [
        ({"kv_cache_mib": 1, "max_model_len": 4096}, ["max_model_len=4096", "33", "null block"]),
        ({"max_model_len": 5000}, ["max_model_len=5000", "4096"]),
    ],
)
def test_start_is_refused_with_the_numbers(change, needles, start, tiny_folder):
    server = start(checkpoint=str(tiny_folder), port=8115, **change)
    assert server.wait_exit() != 0
    for needle in needles:
        assert needle in server.tail()


def test_pool_one_block_short_is_refused_by_the_engine_too(start, tiny_folder):
    """Ten blocks are nine usable ones and the null block: where our own estimate is overridden."""
    server = start(
        checkpoint=str(tiny_folder),
        port=8116,
        block_size=32,
        max_model_len=320,
        extra_args=("--num-gpu-blocks-override", "10"),
    )
    assert server.wait_exit() != 0
    assert "max seq len (320)" in server.log.read_text()
    assert "maximum model length is 288" in server.log.read_text()
    assert not server.port_open()


def test_key_is_asked_for_and_sigterm_lets_running_requests_finish(start, tiny_folder):
    server = start(
        checkpoint=str(tiny_folder), port=8117, api_key="open-sesame", drain_seconds=120
    ).wait_ready()
    arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert b"open-sesame" not in arguments
    body: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 200, "ignore_eos": True}
    key = {"authorization": "Bearer open-sesame"}
    assert server.post("/v1/completions", body).status == 401
    assert server.post("/v1/completions", {**body, "max_tokens": 2}, key).status == 200
    connection = server.connect()
    headers = {"content-type": "application/json", **key}
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), headers)
    response = connection.getresponse()
    first = response.readline()
    server.process.send_signal(signal.SIGTERM)
    rest = response.read().decode()
    connection.close()
    assert first.startswith(b"data:")
    assert rest.rstrip().endswith("data: [DONE]"), rest[-300:]
    assert '"finish_reason":"length"' in rest
    assert server.wait_exit(60) == 0
