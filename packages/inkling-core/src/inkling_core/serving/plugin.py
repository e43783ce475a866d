"""`vllm.general_plugins` entry point: makes vLLM serve Inkling with this repository's code.

What it is: registrations, nothing else. vLLM calls `register` in every process it starts, several
times in some, so it is idempotent, and lazy: classes are named by path and imported on use.

What it replaces in vLLM 0.32 (all keyed on names that vLLM knows in tree):
    architectures InklingForCausalLM, InklingForConditionalGeneration  -> model.InklingForServing,
        unless a back end has named its own class (`register_models`)
    architecture InklingMTPModel                                       -> refused with a reason
    config class of model_type inkling_mm_model                        -> hf_config
    renderer mode "inkling", chosen by vLLM from the architecture name -> renderer.InklingRenderer
    reasoning and tool parsers "inkling_py"                            -> inkling_parsers

It also lends vLLM's log handlers to `inkling_core`, so that what the weights reader says (parts
skipped on purpose, progress with a rate) reaches the server's log.

What it is not: a platform or an attention backend registration; neither is needed.
"""

from __future__ import annotations

import logging

from inkling_core.serving.paths import MODEL_PATH, MTP_PATH, RENDERER_CLASS, RENDERER_MODULE

MTP_ARCHITECTURE = "InklingMTPModel"
RENDERER_MODE = "inkling"
OUR_PACKAGES = "inkling_"  # how the modules of this repository begin


def register() -> None:
    """Register everything. Cheap to call again."""
    register_models(MODEL_PATH, over_back_ends=False)
    _register_config()
    _register_renderer()
    _register_parsers()
    _share_log_handlers()


def register_models(model_path: str, *, over_back_ends: bool = True) -> None:
    """Name the class that serves our architectures, as `module:class`.

    A back end's package calls this with its own class. vLLM loads plug-ins in no fixed order, so
    `register` above passes over_back_ends=False: a class of ours that is there already stays.
    """
    from vllm.model_executor.models.registry import ModelRegistry

    from inkling_core.serving.paths import ARCHITECTURES

    paths = {**dict.fromkeys(ARCHITECTURES, model_path), MTP_ARCHITECTURE: MTP_PATH}
    for name, path in paths.items():
        present = getattr(ModelRegistry.models.get(name), "module_name", "")
        if present.startswith(OUR_PACKAGES) and not over_back_ends:
            continue
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


class _VllmHandlers(logging.Handler):
    """Passes records to the handlers that vLLM has by then: it sets them up late, per process."""

    def emit(self, record: logging.LogRecord) -> None:
        for handler in logging.getLogger("vllm").handlers:
            if record.levelno >= handler.level:
                handler.handle(record)


def _share_log_handlers() -> None:
    ours = logging.getLogger("inkling_core")
    if not ours.handlers:  # `inkling serve` shows them itself in the process that it starts
        ours.addHandler(_VllmHandlers())
        ours.setLevel(logging.INFO)
