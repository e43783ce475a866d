"""The console script `inkling`: a thin dispatcher over Hydra.

Not the work itself: every command is a function in the package that owns the subject
(`inkling_core.serving.server.serve`, `inkling_core.nano.eval.evaluate`, ...). This folder only
finds the command, lets Hydra compose its settings from `conf/`, explains mistakes, and calls that
function. Nothing here imports torch or vLLM, so `--help`, `--cfg job` and `--info defaults` need
hydra-core alone.
"""
