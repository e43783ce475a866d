"""Serving through vLLM: the engine schedules, caches prefixes and speaks HTTP; this package adapts.

settings.py   one settings object: Hydra sets it, worker processes read it from INKLING_* variables
server.py     builds vLLM's arguments from it and starts the server
plugin.py     the `vllm.general_plugins` entry point
model.py      the vLLM-facing model class around `inkling_core.model.Decoder`, written once
metadata.py   vLLM's attention metadata -> `inkling_core.step.Step`
cache_layer.py, pages.py   keys, values and conv rows of a layer in one page of vLLM's pool
renderer.py   chat messages -> prompt ids through inkling_parsers
scheduler.py  vLLM's scheduler plus two rules: the pool must hold one request, NaN ends a request
cpu/          the CPU back end's faster ops, held to inkling_core.ops

Importing this package imports neither torch nor vLLM.
"""
