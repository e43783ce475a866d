"""The file for vLLM's --reasoning-parser-plugin and --tool-parser-plugin: importing it registers.

vLLM imports this file under its bare name, so it holds nothing that anybody would import from it
and its name hides no other module. Everything else is in `inkling_parsers.adapters.vllm`.
"""

from inkling_parsers.adapters.vllm import register

register()
