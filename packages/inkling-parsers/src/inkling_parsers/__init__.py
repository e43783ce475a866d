"""Parse and render the Inkling chat format.

    from inkling_parsers import parse
    parse("<|content_text|>Hello<|end_message|><|content_model_end_sampling|>").content

Pure Python, no dependencies. Servers are in `adapters` and schema coercion in `coercion`; both are
imported on demand. The command line is `python -m inkling_parsers`.
"""

from inkling_parsers.effort import resolve_effort
from inkling_parsers.events import Code, Diagnostic, Event, Termination, coalesce, visible_text
from inkling_parsers.markers import Marker, SpecialTokens, VocabularyError
from inkling_parsers.parser import StreamParser, parse
from inkling_parsers.render import Rendered, render
from inkling_parsers.result import Block, Parsed, ToolCall
from inkling_parsers.strict import ParseError

__all__ = [
    "Block",
    "Code",
    "Diagnostic",
    "Event",
    "Marker",
    "ParseError",
    "Parsed",
    "Rendered",
    "SpecialTokens",
    "StreamParser",
    "Termination",
    "ToolCall",
    "VocabularyError",
    "coalesce",
    "parse",
    "render",
    "resolve_effort",
    "visible_text",
]
