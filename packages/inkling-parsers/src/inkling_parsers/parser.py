"""The public parser: feed a stream, get events; or parse a whole answer, which is the same thing.

API (body under construction in the next commits):

    parse(source, tokens=None, *, texts=None, decode=None, prompt=None, strict=False, trim=False,
          tool_choice=None, stopped=False) -> Parsed
    StreamParser(tokens=None, *, decode=None, prompt=None, strict=False, trim=False,
                 tool_choice=None, header_limit=4096)
        .feed(delta: str) or .feed(ids, texts=None) -> list[Event];  .finish(stopped=False) -> list[Event]
        .termination: Termination | None
    Parsed: reasoning: str | None, content: str | None, tool_calls: tuple[ToolCall, ...],
            blocks, events, diagnostics, termination
    ToolCall: name: str, arguments: str, valid: bool
"""
