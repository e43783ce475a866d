"""The plug-in's seam: our worker for our architectures only, once, whoever else wraps the seam.

The platform here is a plain class with the one class method that is wrapped; tests/hpu runs the
plug-in inside vLLM and vllm-gaudi.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from inkling_core.config.presets import PRESETS
from inkling_hpu import plugin
from inkling_hpu.buckets.file import VARIABLE, read
from inkling_hpu.buckets.generate import generate
from inkling_hpu.buckets.profile import Profile
from inkling_hpu.paths import MODEL_PATH, SCHEDULER_PATH, WORKER_PATH
from inkling_hpu.refusals import INPUT_REUSE, RefusedError

THEIRS = "vllm_gaudi.v1.worker.hpu_worker.HPUWorker"


@pytest.fixture
def platform():
    class Platform:
        seen = 0

        @classmethod
        def check_and_update_config(cls, vllm_config):
            cls.seen += 1
            if vllm_config.parallel_config.worker_cls == "auto":
                vllm_config.parallel_config.worker_cls = THEIRS

    return Platform


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("VLLM_", "PT_HPU", "QUANT_CONFIG", "INKLING_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "")  # so that it is put back after the test
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv(INPUT_REUSE, "0")  # so that the plug-in's own default leaves no trace


def _config(architecture="InklingForConditionalGeneration", worker_cls="auto", **model):
    hf_config = SimpleNamespace(architectures=[architecture], geometry=PRESETS["inkling_small"])
    values = {"dtype": torch.bfloat16, "max_model_len": 1024, "quantization": None}
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_config=hf_config, **{**values, **model}),
        cache_config=SimpleNamespace(
            block_size=16,
            user_specified_block_size=False,
            num_gpu_blocks_override=None,
            cache_dtype="auto",
        ),
        parallel_config=SimpleNamespace(
            worker_cls=worker_cls,
            tensor_parallel_size=8,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            enable_expert_parallel=False,
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=16,
            max_num_batched_tokens=512,
            scheduler_cls=None,
            async_scheduling=True,
        ),
        speculative_config=None,
        kv_transfer_config=None,
        lora_config=None,
    )


@pytest.mark.parametrize(
    ("architecture", "asked", "chosen"),
    [
        ("InklingForConditionalGeneration", "auto", WORKER_PATH),
        ("InklingForCausalLM", "auto", WORKER_PATH),
        ("InklingForCausalLM", "own.Worker", "own.Worker"),
        ("LlamaForCausalLM", "auto", THEIRS),
    ],
)
def test_our_worker_is_chosen_for_ours_only_and_only_where_nobody_chose(
    platform, architecture, asked, chosen
):
    plugin.choose_classes(platform)
    config = _config(architecture, asked)
    for _ in range(2):  # vLLM checks a configuration several times
        platform.check_and_update_config(config)
    assert config.parallel_config.worker_cls == chosen
    assert platform.seen == 2


@pytest.mark.parametrize(
    ("architecture", "asynchronous", "named", "chosen"),
    [
        ("InklingForCausalLM", True, None, SCHEDULER_PATH),
        ("InklingForCausalLM", False, None, plugin.SYNCHRONOUS),
        ("InklingForCausalLM", True, "own.Scheduler", "own.Scheduler"),
        ("LlamaForCausalLM", True, None, None),
    ],
)
def test_our_scheduler_too(platform, architecture, asynchronous, named, chosen):
    plugin.choose_classes(platform)
    config = _config(architecture)
    config.scheduler_config.scheduler_cls = named
    config.scheduler_config.async_scheduling = asynchronous
    platform.check_and_update_config(config)
    assert config.scheduler_config.scheduler_cls == chosen


def test_wrapping_again_does_nothing(platform):
    plugin.choose_classes(platform)
    once = platform.__dict__["check_and_update_config"]
    plugin.choose_classes(platform)
    assert platform.__dict__["check_and_update_config"] is once


def test_another_wrapper_below_and_above_is_called_too(platform):
    calls = []

    def wrap(cls, name):
        inner = cls.check_and_update_config.__func__

        def check_and_update_config(cls, vllm_config):
            calls.append(name)
            inner(cls, vllm_config)

        cls.check_and_update_config = classmethod(check_and_update_config)

    wrap(platform, "below")
    plugin.choose_classes(platform)
    wrap(platform, "above")
    config = _config()
    platform.check_and_update_config(config)
    assert calls == ["above", "below"] and platform.seen == 1
    assert config.parallel_config.worker_cls == WORKER_PATH


def test_what_is_not_served_is_refused_before_the_platform_looks(platform):
    plugin.choose_classes(platform)
    with pytest.raises(RefusedError, match="quantisation fp8"):
        platform.check_and_update_config(_config(quantization="fp8"))
    assert platform.seen == 0


def test_other_models_are_not_refused(platform):
    plugin.choose_classes(platform)
    platform.check_and_update_config(_config("LlamaForCausalLM", quantization="fp8"))
    assert platform.seen == 1


@pytest.mark.parametrize("model_config", [None, SimpleNamespace(hf_config=None)])
def test_a_configuration_without_a_model_passes(platform, model_config):
    plugin.choose_classes(platform)
    config = _config()
    config.model_config = model_config
    platform.check_and_update_config(config)
    assert config.parallel_config.worker_cls == THEIRS


def test_reuse_of_graph_inputs_is_switched_off_unless_somebody_chose(platform, monkeypatch):
    monkeypatch.delenv(INPUT_REUSE)
    plugin.choose_classes(platform)
    platform.check_and_update_config(_config())
    assert os.environ.pop(INPUT_REUSE) == "0"
    monkeypatch.setenv(INPUT_REUSE, "1")
    with pytest.raises(RefusedError, match=INPUT_REUSE):
        platform.check_and_update_config(_config())


def test_our_buckets_are_named_for_ours_unless_somebody_chose(platform, monkeypatch, tmp_path):
    plugin.choose_classes(platform)
    platform.check_and_update_config(_config("LlamaForCausalLM"))
    assert VARIABLE not in os.environ
    for length in (1024, 4096):  # the second model of a process has buckets of its own
        platform.check_and_update_config(_config(max_model_len=length))
        found = read(Path(os.environ[VARIABLE]))
        assert found == generate(Profile(length, max_num_seqs=16, chunk=512))
    monkeypatch.setenv("VLLM_DECODE_BLOCK_BUCKET_MAX", "32")
    monkeypatch.delenv(VARIABLE)
    platform.check_and_update_config(_config())
    assert VARIABLE not in os.environ


def test_paths_name_what_they_say():
    """Read, not imported: the worker needs vllm_gaudi."""
    import inkling_hpu

    package = Path(inkling_hpu.__file__).parent
    module, name = MODEL_PATH.split(":")
    assert f"class {name}(" in (package / f"{module.split('.')[1]}.py").read_text()
    for path in (WORKER_PATH, SCHEDULER_PATH):
        _, module, name = path.split(".")
        assert f"class {name}(" in (package / f"{module}.py").read_text()
