"""Where vLLM and this package meet, without a server: registrations, metadata, configuration."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace

import pytest
import torch

if importlib.util.find_spec("vllm") is None:
    pytest.skip("NO SEAM TESTS: vLLM is not installed here", allow_module_level=True)

# vLLM and its dependencies warn about themselves while they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def common(starts, totals, table, positions=None):
    """The fields of vLLM's CommonAttentionMetadata that the translation reads."""
    return SimpleNamespace(
        query_start_loc_cpu=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor(totals, dtype=torch.int32),
        positions=positions,
        block_table_tensor=torch.tensor(table, dtype=torch.int32),
    )


def test_metadata_becomes_a_step_and_idle_requests_are_left_out():
    from inkling_core.serving.metadata import to_step

    positions = torch.tensor([5, 6, 7, 0, 99])  # the last row is padding
    table = [[4, 2], [9, 9], [3, 0]]
    step = to_step(common([0, 3, 3, 4], [8, 50, 1], table, positions), block_size=4)
    assert step.starts == (0, 3, 4)
    assert step.contexts == (5, 0)
    assert step.block_table_QM.tolist() == [[4, 2], [3, 0]]
    assert step.slots_T.tolist() == [2 * 4 + 1, 2 * 4 + 2, 2 * 4 + 3, 3 * 4]


def test_poison_spreads_over_its_request_only():
    from inkling_core.serving.model import spread_poison

    hidden_TD = torch.ones(6, 3)
    assert spread_poison(hidden_TD, (0, 2, 5, 6)) is hidden_TD
    hidden_TD[3, 1] = float("inf")
    spread = spread_poison(hidden_TD, (0, 2, 5, 6))
    assert spread.isnan().all(-1).tolist() == [False, False, True, True, True, False]


def test_register_can_be_called_again_and_takes_every_seam():
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.reasoning import ReasoningParserManager
    from vllm.renderers.registry import RENDERER_REGISTRY
    from vllm.tool_parsers import ToolParserManager

    from inkling_core.serving import hf_config, plugin

    for _ in range(2):
        plugin.register()
        for name in hf_config.ARCHITECTURES:
            assert ModelRegistry.models[name].module_name == "inkling_core.serving.model"
        assert ModelRegistry.models["InklingMTPModel"].class_name == "MtpIsNotServed"
        assert RENDERER_REGISTRY.renderers["inkling"][0] == "inkling_core.serving.renderer"
        assert "inkling_py" in ReasoningParserManager.list_registered()
        assert "inkling_py" in ToolParserManager.list_registered()


def test_what_the_weights_reader_says_reaches_the_servers_log(monkeypatch):
    import logging

    from inkling_core.serving import plugin

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    monkeypatch.setattr(logging.getLogger("inkling_core"), "handlers", [])
    for _ in range(2):
        plugin.register()
    monkeypatch.setattr(logging.getLogger("vllm"), "handlers", [handler])  # vLLM is late with them
    logging.getLogger("inkling_core.weights").info("skipped on purpose")
    assert said == ["skipped on purpose"]


def test_a_back_ends_class_stays_whoever_registers_first():
    from vllm.model_executor.models.registry import ModelRegistry

    from inkling_core.serving import hf_config, plugin

    name = hf_config.ARCHITECTURES[0]
    try:
        plugin.register_models("inkling_other.model:Model")
        plugin.register()
        assert ModelRegistry.models[name].module_name == "inkling_other.model"
        ModelRegistry.register_model(name, "vllm.models.inkling:InklingForCausalLM")
        plugin.register()
        assert ModelRegistry.models[name].module_name == "inkling_core.serving.model"
    finally:
        plugin.register_models(plugin.MODEL_PATH)


def test_config_reads_a_checkpoint_and_survives_a_round_trip(tmp_path):
    from inkling_core.config import InklingConfig
    from inkling_core.serving.hf_config import InklingServingConfig
    from inkling_core.weights.tiny import make_tiny

    written = make_tiny(tmp_path / "tiny")
    config = InklingServingConfig.from_pretrained(tmp_path / "tiny")
    assert config.geometry == InklingConfig.from_checkpoint(tmp_path / "tiny")
    assert config.vocab_size == written.unpadded_vocab_size
    assert config.get_text_config() is config
    assert config.architectures == ["InklingForConditionalGeneration"]


def test_config_that_is_no_inklings_lists_its_faults(tmp_path):
    from inkling_core.serving.hf_config import InklingServingConfig
    from inkling_core.weights.tiny import make_tiny

    make_tiny(tmp_path / "tiny")
    path = tmp_path / "tiny" / "config.json"
    document = json.loads(path.read_text())
    document["text_config"]["d_rell"] = 3
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="d_rell"):
        InklingServingConfig.from_pretrained(tmp_path / "tiny")


def test_mtp_is_refused_with_a_reason():
    from inkling_core.serving.mtp import MtpIsNotServed

    with pytest.raises(ValueError, match="conv rows cannot be rolled back"):
        MtpIsNotServed(vllm_config=None)
