"""Models that are not ours are served as if our plug-in were not installed: the same tokens.

The run without it names the plug-ins that vLLM may load; the run with it is the default. Both go
through vllm-gaudi's real runner.
"""

import pytest
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
