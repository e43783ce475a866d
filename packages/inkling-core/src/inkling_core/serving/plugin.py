"""`vllm.general_plugins` entry point: makes vLLM serve Inkling with this repository's code.

What it is: registrations, nothing else. vLLM calls `register` in every process it starts, several
times in some, so it is idempotent, and lazy: classes are named by path and imported on use.

What it replaces in vLLM 0.32 (all keyed on names that vLLM knows in tree):
    architectures InklingForCausalLM, InklingForConditionalGeneration  -> model.InklingForServing
    architecture InklingMTPModel                                       -> refused with a reason
    config class of model_type inkling_mm_model                        -> hf_config
    renderer mode "inkling", chosen by vLLM from the architecture name -> renderer.InklingRenderer
    reasoning and tool parsers "inkling_py"                            -> inkling_parsers

What it is not: a platform or an attention backend registration; neither is needed.
"""

from __future__ import annotations

from inkling_core.serving.paths import MODEL_PATH, MTP_PATH, RENDERER_CLASS, RENDERER_MODULE

MTP_ARCHITECTURE = "InklingMTPModel"
RENDERER_MODE = "inkling"


def register() -> None:
    """Register everything. Cheap to call again."""
    _register_models()
    _register_config()
    _register_renderer()
    _register_parsers()


def _register_models() -> None:
    from vllm.model_executor.models.registry import ModelRegistry

    from inkling_core.serving.hf_config import ARCHITECTURES

    paths = {**dict.fromkeys(ARCHITECTURES, MODEL_PATH), MTP_ARCHITECTURE: MTP_PATH}
    for name, path in paths.items():
        # vLLM warns when a known name is replaced; replacing it is the point, so drop it first.
        ModelRegistry.models.pop(name, None)
        ModelRegistry.register_model(name, path)


def _register_config() -> None:
    from transformers import AutoConfig
    from vllm.transformers_utils import config as vllm_config

    from inkling_core.serving.hf_config import MODEL_TYPE, InklingServingConfig

    AutoConfig.register(MODEL_TYPE, InklingServingConfig, exist_ok=True)
    # vLLM looks in this table before AutoConfig; there is no public call that replaces an entry.
    vllm_config._CONFIG_REGISTRY[MODEL_TYPE] = InklingServingConfig


def _register_renderer() -> None:
    from vllm.renderers.registry import RENDERER_REGISTRY

    RENDERER_REGISTRY.renderers.pop(RENDERER_MODE, None)
    RENDERER_REGISTRY.register(RENDERER_MODE, RENDERER_MODULE, RENDERER_CLASS)


def _register_parsers() -> None:
    from inkling_parsers.adapters import vllm as adapters

    adapters.register()
