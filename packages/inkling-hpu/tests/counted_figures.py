"""The part of a page that a test writes: tables between two comments."""

import re

COUNTED = re.compile(r"(<!-- counted: begin -->\n).*?(<!-- counted: end -->)", re.DOTALL)


def table(headings, rows):
    """A Markdown table; numbers to the right."""
    rule = "|".join("---" if not place else "---:" for place in range(len(headings)))
    lines = [" | ".join(map(str, row)) for row in (headings, *rows)]
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])
