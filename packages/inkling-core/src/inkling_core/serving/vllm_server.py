"""Where vLLM keeps the pieces of its OpenAI server, by version.

What it is: the one place that knows. Served versions: 0.32 (CPU), 0.26 to 0.30 (under vllm-gaudi).

    0.32          vllm.entrypoints.launchers
    up to 0.30    vllm.entrypoints.openai; no logging set up from arguments before the engine starts

What it is not: a server, or a range of versions that somebody promised to support: a version with
neither place fails here, by the name of the module.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

__all__ = [
    "build_and_serve",
    "build_async_engine_client",
    "configure_logging",
    "make_arg_parser",
    "setup_server",
    "validate_parsed_serve_args",
]

if find_spec("vllm.entrypoints.launchers") is not None:
    from vllm.entrypoints.launchers.api_server.entry import (
        build_and_serve,
        build_async_engine_client,
    )
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.entrypoints.launchers.launcher import setup_server
else:
    from vllm.entrypoints.openai.api_server import (  # type: ignore[no-redef]  # the other version
        build_and_serve,
        build_async_engine_client,
        setup_server,
    )
    from vllm.entrypoints.openai.cli_args import (  # type: ignore[no-redef]  # the other version
        make_arg_parser,
        validate_parsed_serve_args,
    )


def configure_logging(parsed: Any) -> None:
    """As vLLM's own command does where it can."""
    import vllm.logger

    configure = getattr(vllm.logger, "configure_logging_from_args", None)
    if configure is not None:
        configure(parsed)
