"""Every touch of vllm_gaudi, and nothing else.

names.py      the table: each name, parameter, field and attribute that this package relies on
check.py      compares that table with the installed source, before any of it is imported
imports.py    its classes, for everyone who derives from them
attention.py  attention of a step over its paged cache
kernels.py    puts the Gaudi kernels behind the marker ops

Only imports.py and kernels.py import it.

What it is not: the plugin (inkling_hpu.plugin) or anything that knows Inkling. Importing this
package imports neither vLLM nor vllm_gaudi.
"""
