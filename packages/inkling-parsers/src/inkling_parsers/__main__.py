"""The command line: `python -m inkling_parsers parse|render|check`, also `inkling parsers ...`.

Thin: each command reads a file, calls the library, prints. Exit status: 0 well, 1 rows failed,
2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inkling_parsers.parser import parse
from inkling_parsers.render import render
from inkling_parsers.result import Parsed


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` without the program's name. Returns the exit status."""
    options = _arguments().parse_args(argv)
    try:
        return options.run(options)
    except (OSError, ValueError) as error:
        print(f"inkling parsers {options.command}: {error}", file=sys.stderr)
        return 2


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="inkling parsers",
        description="Parse and render the Inkling chat format.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _parse_command(commands.add_parser("parse", help="a model's answer to JSON"))
    _render_command(commands.add_parser("render", help="messages to a prompt"))
    _check_command(commands.add_parser("check", help="hold the package to files of cases"))
    return parser


def _parse_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="-", help="the answer; - reads standard input")
    parser.add_argument("--prompt", default="", help="the end of the prompt, as text")
    parser.add_argument(
        "--strict", action="store_true", help="the model owner's rules, with errors"
    )
    parser.add_argument("--trim", action="store_true", help="trim whitespace as vLLM does")
    parser.add_argument(
        "--tokenizer", help="tokenizer.json: the file holds a JSON list of token ids, not text"
    )
    parser.set_defaults(run=_run_parse)


def _render_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default="-", help="a JSON list of messages, or {messages, tools}"
    )
    parser.add_argument("--effort", default="0.9", help="a number, a word, or 'absent'")
    parser.add_argument("--flavor", choices=("vllm", "owner"), default="vllm")
    parser.add_argument("--no-generation-prompt", action="store_true")
    parser.add_argument("--segments", action="store_true", help="JSON segments instead of text")
    parser.set_defaults(run=_run_render)


def _check_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--tokenizer", help="tokenizer.json, to compare token ids as well")
    parser.set_defaults(run=_run_check)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    with open(file, encoding="utf-8", newline="") as source:
        return source.read()


def _run_parse(options: argparse.Namespace) -> int:
    text = _read(options.file)
    rules: dict[str, Any] = {"strict": options.strict, "trim": options.trim}
    if options.tokenizer is None:
        parsed = parse(text, prompt=options.prompt, **rules)
    else:
        from inkling_parsers.check.tokenizer import Tokenizer

        tokenizer = Tokenizer(options.tokenizer)
        ids = json.loads(text)
        parsed = parse(ids, tokenizer.tokens, decode=tokenizer.decode, **rules)
    print(json.dumps(_as_json(parsed), ensure_ascii=False, indent=2))
    return 0


def _as_json(parsed: Parsed) -> dict[str, Any]:
    return {
        "reasoning": parsed.reasoning,
        "content": parsed.content,
        "tool_calls": [
            {"name": call.name, "arguments": call.arguments, "valid": call.valid}
            for call in parsed.tool_calls
        ],
        "termination": parsed.termination.value,
        "diagnostics": [
            {"code": diagnostic.code.value, "message": diagnostic.message}
            for diagnostic in parsed.diagnostics
        ],
    }


def _run_render(options: argparse.Namespace) -> int:
    value = json.loads(_read(options.file))
    request = value if isinstance(value, dict) else {"messages": value}
    rendered = render(
        request.get("messages", [request]),
        request.get("tools"),
        _effort(options.effort),
        not options.no_generation_prompt,
        flavor=options.flavor,
    )
    if options.segments:
        print(json.dumps([list(segment) for segment in rendered.segments], ensure_ascii=False))
    else:
        print(rendered.text)
    return 0


def _effort(word: str) -> float | str | None:
    if word == "absent":
        return None
    try:
        return float(word)
    except ValueError:
        return word


def _run_check(options: argparse.Namespace) -> int:
    from inkling_parsers.check import Tokenizer, check_rows, report

    tokenizer = Tokenizer(options.tokenizer) if options.tokenizer else None
    outcomes = []
    for file in options.files:
        lines = Path(file).read_text(encoding="utf-8").split("\n")
        try:
            outcomes += check_rows(lines, tokenizer)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
    text, failed = report(outcomes)
    print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
