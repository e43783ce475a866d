"""Serving through vLLM: the engine schedules, caches prefixes and speaks HTTP; this package adapts.

settings.py      one settings object: Hydra sets it, workers read it from INKLING_* variables
server.py        start-up checks, vLLM's arguments and environment, a token before HTTP opens
launch.py        what a back end changes about that; vllm_server.py: where vLLM keeps its server
plugin.py        the `vllm.general_plugins` entry point; paths.py: the names it hands out
hf_config.py     config.json as vLLM sees it; mtp.py: a refusal
metrics.py       gauges of our own beside vLLM's on /metrics
model.py         the vLLM-facing model class around `inkling_core.model.Decoder`, written once
metadata.py      vLLM's attention metadata -> `inkling_core.step.Step`
pages.py         keys, values and conv row of a block in one page; plan.py: what a page costs
cache_layer.py, paged_cache.py, conv_rows.py   those pages as vLLM's layer, KV cache, conv store
renderer.py      chat messages -> prompt ids through inkling_parsers
scheduler.py     vLLM's scheduler plus three rules: NaN ends one request, a schema on a raw
                 completion holds at once, long prompts leave the others their share
long_prefill.py  the third of them; pace.py: its arithmetic
cpu/             the CPU back end's faster ops, held to inkling_core.ops

Importing this package imports neither torch nor vLLM.
"""
