"""What can be set about a server, once: by Hydra, by keyword, or by INKLING_* variables.

What it is: a frozen dataclass and the rules that carry it. `inkling serve` fills it from Hydra;
`with_environment` merges INKLING_* variables into it and refuses contradictions; `environment`
writes it back out, so that vLLM's engine and worker processes, which only inherit variables, see
the very same values through `ServeSettings.from_environment`.

What it is not: vLLM's argument list (server.py makes that). No torch, no vLLM here: `--help` and
`--cfg job` read this file in a bare environment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

PREFIX = "INKLING_"
SECRETS = frozenset({"api_key"})  # never on a command line, never in a log
DTYPES = ("auto", "float32", "bfloat16")
CONV_DTYPES = ("auto", "float32", "bfloat16")
BACKENDS = ("cpu", "reference", "hpu_emulated")
PARSERS = ("inkling_py", "none")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MAX_EFFORT = 0.99
NULL = "null"  # Hydra's word for None, in variables too


@dataclass(frozen=True)
class ServeSettings:
    """Every knob of `inkling serve`. Field NAME is also the variable INKLING_NAME.

    checkpoint: folder in the published format; None is the embedded nano model.
    host: address to listen on; loopback unless somebody else is meant to reach it.
    port: TCP port to listen on.
    served_model_name: what clients call the model; None is the folder's name.
    api_key: what clients have to send as bearer token; better given as INKLING_API_KEY.
    dtype: model dtype; auto is the one the checkpoint is stored in (nano: float32).
    conv_dtype: dtype of the conv rows; auto is the model dtype, which loses nothing.
    backend: `cpu` (paged ops for serving), `reference` (the law itself, slow) or `hpu_emulated`
        (vllm-gaudi's runner on an emulated device; needs inkling-hpu and vllm_gaudi).
    pack_experts: keep experts that are stored in MXFP8 or NVFP4 as stored and decode them one by
        one when used; less memory, slower. On cpu and reference only.
    max_model_len: tokens of prompt plus answer; None is the checkpoint's own limit.
    kv_cache_mib: pool for keys, values and conv rows of all requests, MiB.
    block_size: positions per block; a prefix hit reuses whole blocks.
    max_num_seqs: requests per step.
    max_num_batched_tokens: tokens per step, prompts and answers together (the chunk budget).
    long_prefill_share: seconds that prompts too long for one step may take per second of everybody
        else's steps, above 0 to 1; streams keep at least 1 / (1 + share) of their rate (0.5: two
        thirds). null puts long prompts into every step, as vLLM alone does.
    prefix_caching: let requests share blocks of equal prompt beginnings.
    tensor_parallel: worker processes that share every layer.
    threads: CPU threads of each worker; None is every core this process may use.
    drain_seconds: how long SIGTERM lets running requests finish.
    parsers: who takes answers apart: `inkling_py`, or `none` for answers as one text.
    default_effort: thinking effort, 0 to 0.99, of requests that do not say one.
    log_requests: log each request.
    log_stats: log throughput and cache use every ten seconds.
    log_level: least severe of the server's messages to show, for example DEBUG or WARNING.
    extra_args: more arguments for vLLM's own server, verbatim, last.
    """

    checkpoint: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str | None = None
    api_key: str | None = None
    dtype: str = "auto"
    conv_dtype: str = "auto"
    backend: str = "cpu"
    pack_experts: bool = False
    max_model_len: int | None = None
    kv_cache_mib: int = 512
    block_size: int = 128
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    long_prefill_share: float | None = 0.5
    prefix_caching: bool = True
    tensor_parallel: int = 1
    threads: int | None = None
    drain_seconds: int = 30
    parsers: str = "inkling_py"
    default_effort: float = 0.9
    log_requests: bool = False
    log_stats: bool = True
    log_level: str = "INFO"
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, DTYPES)
        _check_choice("conv_dtype", self.conv_dtype, CONV_DTYPES)
        _check_choice("backend", self.backend, BACKENDS)
        _check_choice("parsers", self.parsers, PARSERS)
        _check_choice("log_level", self.log_level, LOG_LEVELS)
        if self.pack_experts and self.backend not in ("cpu", "reference"):
            raise ValueError(
                f"pack_experts=true needs backend=cpu or reference: the kernel of {self.backend} "
                "wants every expert decoded; leave it out, and experts are decoded while loading"
            )
        if not 0 <= self.default_effort <= MAX_EFFORT:  # written so that NaN fails too
            raise ValueError(f"default_effort={self.default_effort} must lie in 0..{MAX_EFFORT}")
        share = self.long_prefill_share
        if share is not None and not 0 < share <= 1:
            raise ValueError(
                f"long_prefill_share={share} must lie above 0 and not above 1; null leaves long "
                "prompts unpaced"
            )
        for name in ("kv_cache_mib", "block_size", "max_num_seqs", "tensor_parallel"):
            _check_at_least(name, getattr(self, name), 1)
        _check_at_least("drain_seconds", self.drain_seconds, 0)
        for name in ("max_model_len", "threads"):
            if getattr(self, name) is not None:
                _check_at_least(name, getattr(self, name), 1)
        if not all(isinstance(one, str) for one in self.extra_args):
            raise ValueError(f"extra_args={list(self.extra_args)} must be a flat list of words")
        if not 1 <= self.port <= 65535:
            raise ValueError(f"port={self.port} must lie in 1..65535")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens={self.max_num_batched_tokens} is below "
                f"max_num_seqs={self.max_num_seqs}: every running request needs a token per step; "
                "raise the former or lower the latter"
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ServeSettings:
        """The settings that a parent process wrote with `environment` (defaults where silent)."""
        return cls(**_read_environment(environ))

    def with_environment(
        self, environ: Mapping[str, str], typed: Collection[str] = ()
    ) -> ServeSettings:
        """Merge INKLING_* variables in.

        A variable fills a field that still has its default and is not among `typed`, the fields
        that the user named. Any other that differs from its variable is a contradiction:
        ValueError naming both.
        """
        defaults = ServeSettings()
        changes: dict[str, Any] = {}
        for name, value in _read_environment(environ).items():
            current = getattr(self, name)
            if current == value:
                continue
            if name in typed or current != getattr(defaults, name):
                shown = ("(hidden)", "(hidden)") if name in SECRETS else (current, value)
                raise ValueError(
                    f"{name}={shown[0]!r} contradicts {PREFIX}{name.upper()}={shown[1]!r}: "
                    "unset one of the two"
                )
            changes[name] = value
        return replace(self, **changes)

    def environment(self) -> dict[str, str]:
        """INKLING_* variables that say every field that differs from its default."""
        defaults = ServeSettings()
        return {
            PREFIX + field.name.upper(): _to_text(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != getattr(defaults, field.name)
        }


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(choices)}")


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name}={value} must be >= {least}")


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Typed values of the INKLING_* variables that name a field; other names are not ours."""
    hints = get_type_hints(ServeSettings)
    values: dict[str, Any] = {}
    for field in fields(ServeSettings):
        text = environ.get(PREFIX + field.name.upper())
        if text is not None and text != "":
            values[field.name] = _from_text(field.name, text, str(hints[field.name]))
    return values


def _from_text(name: str, text: str, hint: str) -> Any:
    if "None" in hint and text == NULL:
        return None
    if "tuple" in hint:
        return tuple(text.split("\n"))
    if "bool" in hint:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"{PREFIX}{name.upper()}={text!r} must be true or false")
        return text.lower() in ("true", "1")
    if "int" in hint:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{PREFIX}{name.upper()}={text!r} must be an integer") from None
    if "float" in hint:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"{PREFIX}{name.upper()}={text!r} must be a number") from None
    return text


def _to_text(value: Any) -> str:
    if isinstance(value, tuple):
        return "\n".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return NULL if value is None else str(value)
