"""The plug-in inside vLLM and vllm-gaudi: whom it touches, what it refuses, sleep and wake-up.

The run without it names the plug-ins that vLLM may load; the run with it is the default. All go
through vllm-gaudi's real worker and runner.
"""

import json
import subprocess
import sys

import pytest
import runs
from prompts import of_lengths
from runs import Batch, Run

VOCABULARY = 512
BATCH = Batch(of_lengths((6, 127, 141, 301), VOCABULARY), 24)
GAUDI_ONLY = "hpu,01.hpu_custom_utils,02.hpu_custom_ops,03.hpu_custom_models,04.hpu_tool_parsers"
ENGINE = {"enable_prefix_caching": True, "max_num_batched_tokens": 128}
ANNOUNCED = "inkling-hpu changes"  # how the register of patches begins
OURS = "inkling_hpu.worker"


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_stock_models_give_the_same_tokens(name, model, execute):
    batches = [BATCH, BATCH]
    without = execute(Run(model(name), batches, ENGINE, {"VLLM_PLUGINS": GAUDI_ONLY}))
    present = execute(Run(model(name), batches, ENGINE))
    assert ANNOUNCED in present.log and ANNOUNCED not in without.log
    assert present.tokens == without.tokens
    assert present.cached == without.cached and max(present.cached[1]) >= 128
    assert OURS not in present.log


REFUSED = {
    "pool": ({"num_gpu_blocks_override": 8}, {}, "needs 9"),
    "contiguous": ({}, {"VLLM_CONTIGUOUS_PA": "true"}, "VLLM_CONTIGUOUS_PA=true"),
    "dtype": ({"dtype": "float16"}, {}, "--dtype bfloat16"),
}


@pytest.mark.parametrize(("engine", "environ", "said"), REFUSED.values(), ids=REFUSED)
def test_refused_before_weights_are_read(engine, environ, said, model, execute):
    """vLLM's own check lets a pool of exactly one request pass, which then waits for ever."""
    with pytest.raises(runs.RunFailed) as raised:
        execute(Run(model("nano"), [BATCH], engine, environ))
    assert said in str(raised.value) and "inkling-hpu does not serve" in str(raised.value)
    assert "Starting to load model" not in str(raised.value)


def test_caches_are_dropped_in_sleep_and_made_anew(model, tmp_path):
    out = tmp_path / "out.json"
    script = str(runs.HERE / "sleep_and_wake.py")
    done = subprocess.run(
        [sys.executable, "-m", "inkling_hpu.emulation", script, str(model("nano")), str(out)],
        env=runs.environment(Run(model("nano"), []), tmp_path),
        capture_output=True,
        text=True,
        timeout=runs.SECONDS,
    )
    assert out.exists(), done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert found["asleep"] and found["fresh"]
    assert found["after"] == found["before"]
