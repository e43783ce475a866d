"""inkling-nano: the trained model of one million parameters that ships inside this package.

What it is: its tasks (`tasks.cases`), its trainer (`python -m inkling_core.nano.train`), its
checkpoint in the published format with a model card (`checkpoint/`), its judge (`inkling eval`).
What it is not: special code to run it. It is an ordinary checkpoint; the decoder and the server
treat it as any other.
"""
