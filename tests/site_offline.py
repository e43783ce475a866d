"""Refuses a built site whose pages fetch anything from the network.

    python tests/site_offline.py FOLDER

Looks at what a browser loads by itself: scripts, style sheets, images, and the `url(...)` of style
sheets. Not at links that a reader clicks (the strict build checks those inside the site).
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "prev", "next", "alternate"}  # relations of <link> that only inform
REMOTE = re.compile(r"(?:https?:)?//")
IN_STYLE = re.compile(r"(?:url\(|@import )['\"]?((?:https?:)?//[^)'\"]+)")


class Loads(HTMLParser):
    """Collects the remote addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.remote: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(LOADED.get(tag, ""))
        if address and REMOTE.match(address) and given.get("rel") not in NOT_LOADED:
            self.remote.append(address)


def remote_loads(folder: Path) -> list[str]:
    """`page: address` of everything that would be fetched from elsewhere."""
    found = []
    for path in sorted(folder.rglob("*.html")):
        page = Loads()
        page.feed(path.read_text(encoding="utf-8"))
        addresses = page.remote + IN_STYLE.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(folder)}: {address}" for address in addresses]
    for path in sorted(folder.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.relative_to(folder)}: {address}" for address in IN_STYLE.findall(text)]
    return found


def main(folder: Path) -> int:
    """Prints what is remote; 1 where something is, or where there is no page at all."""
    pages = len(list(folder.rglob("*.html")))
    found = remote_loads(folder)
    print("\n".join([*found, f"{pages} pages, {len(found)} remote loads"]))
    return int(bool(found) or not pages)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
