"""The shipped checkpoint in HF transformers: loads whole, same logits, same answers."""

from __future__ import annotations

import warnings

import pytest
import torch

from inkling_core.checkpoint import load_decoder
from inkling_core.embedded import EMBEDDED
from inkling_core.generate import TokenGenerator
from inkling_core.nano.rows import Mix, batch

LIMIT = 1e-4  # max |difference| of float32 logits whose standard deviation is above 3


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    reason = "needs transformers with Inkling (5.24)"
    pytest.importorskip("transformers.models.inkling.configuration_inkling", reason=reason)
    from transformers.models.inkling import configuration_inkling as configs
    from transformers.models.inkling.modeling_inkling import InklingForConditionalGeneration

    config = configs.InklingConfig.from_pretrained(EMBEDDED)
    # The checkpoint is text only; without this transformers would build its full-size towers.
    config.vision_config.num_hidden_layers, config.vision_config.hidden_size = 2, 16
    config.vision_config.patch_size, config.audio_config.n_mel_bins = 4, 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the towers' random weights
        loaded, info = InklingForConditionalGeneration.from_pretrained(
            EMBEDDED, config=config, dtype=torch.float32, output_loading_info=True
        )
    assert not info["unexpected_keys"]
    assert all("vision" in key or "visual" in key or "audio" in key for key in info["missing_keys"])
    return loaded.eval()


@pytest.mark.parametrize("length", [63, 129, 1000, 2048])
def test_logits_equal_those_of_transformers(model: torch.nn.Module, length: int) -> None:
    rows, masks = batch(f"hf/{length}", 2048, 1, Mix(0.3, 0.1, 0.2, 0.5))
    row, said = rows[0][:length], torch.tensor((masks[0] + [0])[1 : length + 1], dtype=torch.bool)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([row])).logits[0].float()
    actual = TokenGenerator(load_decoder(EMBEDDED), length).feed(row)
    assert actual.shape == expected.shape
    assert expected.std() > 2
    difference = float((actual - expected).abs().max())
    print(f"length {length}: max difference {difference:.2e}, std {float(expected.std()):.2f}")
    assert difference < LIMIT
    # Outside answers nothing was trained, so two tokens can be as likely to the last bit.
    answers = said.nonzero().squeeze(1)
    assert torch.equal(actual[answers].argmax(-1), expected[answers].argmax(-1))
