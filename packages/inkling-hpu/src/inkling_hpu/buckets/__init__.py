"""The shapes that are compiled before the first request: which, and whether they are enough.

profile.py     what decides them: context, streams, chunk, the padding that is allowed
sizes.py       sizes of one dimension, as few as the padding allows
generate.py    profile -> (batch, query tokens, blocks) of every graph
coverage.py    shapes that the scheduler can ask for, the graph that each gets, how much is padding
file.py        the text in which vllm-gaudi reads them; put in place when a server starts
command.py     `inkling buckets`: the report

What it is not: the warm-up (warmup.py). Nothing here needs torch, vLLM or vllm_gaudi.
"""
