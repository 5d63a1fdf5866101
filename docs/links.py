"""Looks at every page of a built site: links and files within it must exist, and nothing is loaded from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "img": "src",
    "script": "src",
    "link": "href",
    "source": "src",
    "iframe": "src",
}  # what a browser fetches itself


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in LOADED and given.get(LOADED[tag]) and given.get("rel") not in ("canonical", "author"):
            self.loaded.append(given[LOADED[tag]])


def read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


def broken(site: Path) -> list[str]:
    """What is wrong, a line each."""
    found = (path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts)  # templates of the theme
    pages = {path.resolve(): read(path) for path in found}
    out = []
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for target in page.loaded:
            if urlsplit(target).scheme not in ("", "data") or target.startswith("//"):
                out.append(f"{where}: loads {target}")
        for target in [*page.links, *page.loaded]:
            parts = urlsplit(target)
            if parts.scheme or target.startswith("//"):
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if goal.is_dir():
                goal /= "index.html"
            if not goal.exists():
                out.append(f"{where}: {target} leads nowhere")
            elif parts.fragment and goal in pages and unquote(parts.fragment) not in pages[goal].anchors | {"", "top"}:
                out.append(f"{where}: {target}: no such place on the page")
    return out
