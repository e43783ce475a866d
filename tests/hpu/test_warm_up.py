"""The watched warm-up inside vllm-gaudi's runner: told, left out where memory ends, ended where it
is stuck."""

import re

import pytest
import runs
from runs import Run

ENGINE = {"enforce_eager": False, "max_num_batched_tokens": 128}
WARM = {"VLLM_SKIP_WARMUP": "false"}


def launch(model, folder, fault, **environ):
    run = Run(model("nano"), [], ENGINE, {**WARM, **environ})
    return runs.launch("warm_up.py", run, folder, {"fault": fault})


def test_graphs_without_memory_are_left_out_and_requests_are_answered(model, tmp_path):
    whole, told = launch(model, tmp_path / "none", "none")
    short, log = launch(model, tmp_path / "memory", "memory")
    assert short == whole and len(short) == 6
    assert "left out" not in told and "warm-up left out" in log
    assert "leaves out decode of 4 requests" in log
    for text in (told, log):
        assert "warm-up 1 of " in text and " left" in text
        assert re.search(r"'inkling:conv_rows': \d\d+\.0", text)
        assert re.search(
            r"'inkling:warmup_seconds': \d+\.\d+, 'inkling:warmup_graphs': \d+\.0", text
        )


def test_a_stuck_graph_ends_the_process_with_its_name_and_the_stacks(model, tmp_path):
    with pytest.raises(runs.RunFailed) as raised:
        launch(model, tmp_path, "stuck", INKLING_WARMUP_STEP_SECONDS="4")
    log = (tmp_path / "log.txt").read_text()
    assert "exit status 1" in str(raised.value)
    assert "warm-up is stuck in the graph of a decode of" in log and "Timeout (0:00:09)" in log
    assert "in break_decodes" in log or "in broken" in log
