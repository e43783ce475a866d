"""Adapters to servers, imported on demand: nothing here is loaded by `import inkling_parsers`.

`openai` turns parser events into OpenAI dictionaries and needs no package. `vllm` registers the
parsers `inkling_py` and `inkling2_py` with vLLM 0.26 to 0.33 and needs vLLM. The grammar itself
belongs to `inkling_parsers.parser`; an adapter may not know it.
"""
