"""`gatedjax explore MODEL`: a page on this machine that shows the words of a prediction."""

import contextlib
import dataclasses
import html
import os
import re
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import tyro

from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.fields import at_least
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import check_place, write_atomic


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """Opens a page on this machine that shows the words on which a prediction rests.

    The page shows for each word whether it is read, its attention, and how much its removal changes
    the prediction. Press a word to force its gate. The page opens with a sentence of --file. For a
    reader it shows the attention of each hop, for a translator the alignment, for a lexicon the
    part of each word in each class or label, in the number or in the grade. No data leave the
    machine.

    With --html the page is a file that needs no server: for a lexicon with the texts of --file, for
    a network with a --text and all patterns of its gates.

    For example:
    $ gatedjax explore model --file test.csv
    $ gatedjax explore model --file test.csv --html page.html
    """

    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The folder that `gatedjax train` or `gatedjax export` wrote, or the work folder of a run."""
    against: Unset[Path] = None
    """The folder of a second model, which is shown next to the first: a model of the same kind, or
    a lexicon beside a network of the same classes."""
    file: Unset[str] = None
    """Labelled texts to browse, as `gatedjax train` reads them."""
    column: str = "text"
    """The column of the texts in --file."""
    label: str = "label"
    """The column of the labels in --file."""
    encoding: str = "utf-8"
    """The encoding of --file."""
    text: Unset[str] = None
    """The sentence that is shown first."""
    tokenized: Flag = False
    """Take the documents for a reader as tokens that are separated by spaces."""
    html: Unset[Path] = None
    """A file for a page that needs no server."""
    port: Annotated[int, at_least(0, 2**16 - 1), tyro.conf.arg(help_behavior_hint="")] = 0
    """The port of the page on this machine (default: any free port)."""
    token: Unset[str] = None
    """A part of the address, at least 16 letters, digits and hyphens, so that links stay valid
    (default: a new random token)."""
    no_browser: Flag = False
    """Only print the address and open no browser."""


def _check(options: ExploreOptions) -> None:
    """Raises an error for options that cannot be used."""
    check_place(options.html, begins=b"<!doctype html>")
    if options.token is not None and not re.fullmatch("[A-Za-z0-9-]{16,}", options.token):
        raise ValueError(
            "--token must have at least 16 letters, digits and hyphens and no other character, got "
            f"{options.token!r}"
        )


def _run(options: ExploreOptions) -> None:
    from gatedjax.explore._engine import Explorer, open_model
    from gatedjax.explore._offline import offline_page
    from gatedjax.text.sources._open import open_table
    from gatedjax.text.sources._table import Columns

    _check(options)
    folders = [options.model, *filter(None, [options.against])]
    models = [open_model(folder) for folder in folders]
    explorer = Explorer(models, [folder.resolve().name for folder in folders], options.tokenized)
    table = None
    if options.file is not None:
        explorer.check_sentences("--file")
        columns = Columns((options.column,), options.label)
        table = open_table(options.file, columns, encoding=options.encoding, split="test")
    if options.html is None:
        _serve(options, explorer, table)
        return
    content = offline_page(explorer, options.text or "", table)
    write_atomic(options.html, content)
    say(f"wrote {options.html} ({len(content) / 1000:,.0f} kB)")


def _serve(options: ExploreOptions, explorer: Any, table: Any) -> None:
    """Serves the page until Ctrl-C."""
    from gatedjax.explore._sentences import Session
    from gatedjax.explore._server import Server

    session = Session(explorer, table)
    with Server(session.ask, port=options.port, token=options.token) as server:
        # The programs are compiled while the browser starts and the user types.
        session.warm_up()
        text = options.text
        address = server.address + ("" if text is None else f"#text={quote(text, safe='')}")
        say(f"{address}\nOnly this machine can open the page. Ctrl-C stops it.")
        try:
            with contextlib.nullcontext() if options.no_browser else _open_browser(address):
                server.serve_forever()
        except KeyboardInterrupt:
            say("stopped", file=sys.stderr)
        finally:
            if not session.close(seconds=0.5):
                # A thread is compiling, which takes seconds. Python would wait for it and abort.
                os._exit(0)


@contextlib.contextmanager
def _open_browser(address: str) -> Iterator[None]:
    """Opens a browser with a file that leads to the address, and removes the file at the end."""
    # The address has a secret token, and all users of the machine can read the command line of the
    # browser, which therefore names a file that only its owner can read.
    handle, name = tempfile.mkstemp(prefix="gatedjax-", suffix=".html")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(_REDIRECT.format(html.escape(address)))
        # A separate thread is needed, because a browser in a terminal blocks until it is closed.
        threading.Thread(target=_show, args=(Path(name).as_uri(),), daemon=True).start()
        yield
    finally:
        Path(name).unlink(missing_ok=True)


_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>gatedjax explorer</title>
<a href="{0}">gatedjax explorer</a>
"""


def _show(address: str) -> None:
    try:
        has_browser = webbrowser.open(address)
    except webbrowser.Error:
        has_browser = False
    if not has_browser:
        say("No browser was found: open the address above in one.", file=sys.stderr)


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    options = parse(ExploreOptions, args, f"{program()} explore")
    with refusals({"columns.inputs must": "--column must"}, ExploreOptions):
        _run(options)
    return 0
