"""A check of the links between the files of the finished site."""

import html
import re
import urllib.parse
from pathlib import Path

_LINK = re.compile(r'(?:href|src)="([^"]+)"')
_LOADED = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)')
_ANCHOR = re.compile(r'\b(?:id|name)="([^"]+)"')
_ELSEWHERE = ("http:", "https:", "mailto:", "data:", "javascript:")


def broken_links(folder: Path) -> list[str]:
    """Returns a line "page: link" for each link in the site that leads to no file or anchor.

    Links to other hosts are not followed, but no page may load a script, a style or a picture from
    one. The files of the theme in `_static` are not pages of the site.

    Args:
      folder: the folder of the built HTML pages.
    """
    pages = {
        path: path.read_text("utf-8")
        for path in sorted(folder.resolve().rglob("*.html"))
        if "_static" not in path.parts
    }
    anchors = {path: set(_ANCHOR.findall(text)) for path, text in pages.items()}
    broken = []
    for page, text in pages.items():
        name = page.relative_to(folder.resolve())
        broken += [f"{name}: {link}" for link in _LOADED.findall(text)]
        for written in dict.fromkeys(_LINK.findall(text)):
            link = html.unescape(written)
            if link.startswith(_ELSEWHERE):
                continue
            address, _, anchor = link.partition("#")
            address = urllib.parse.unquote(address.partition("?")[0])
            target = (page.parent / address).resolve() if address else page
            if target.is_dir():
                target /= "index.html"
            is_found = target.exists()
            if is_found and anchor and target in anchors:
                is_found = urllib.parse.unquote(anchor) in anchors[target]
            if not is_found:
                broken.append(f"{name}: {link}")
    return broken
