"""`gatedjax explore MODEL`: a page on this machine that shows gates and lets one force them."""

import contextlib
import dataclasses
import html
import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import check_place, write_atomic

_SECONDS = 0.5
"""Ctrl-C waits so long for each thing that is being computed."""
TOKEN = 16
"""Characters of a token at least."""
SOFT = "soft"
"""Where the demo of GA-Net keeps the run that it is compared with."""
EMBEDDED = "polarity"
"""The data set that is part of gatedjax; the demo's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """Opens a page on this machine that shows the gates of a model.

    Type a sentence, see gates, attention and class probabilities, force a gate and see what
    changes. The page shows what every hop of a reader reads, and the alignment of a translator.
    Nothing leaves the machine.

    For example:
    $ gatedjax explore model --file test.csv
    $ gatedjax explore model --html page.html --text "a dull film"
    """

    model: Annotated[Unset[Path], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL]")] = None
    """The folder that `gatedjax train` or `gatedjax export` wrote, or the work folder of a run."""
    workdir: Unset[Path] = None
    """The work folder of a run of experiments.ga_net, in place of MODEL."""
    against: Unset[Path] = None
    """The folder of a second model, which is shown beside the first."""
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
    """The documents for a reader are tokens between spaces already."""
    html: Unset[Path] = None
    """A file for one page that needs no server and holds every pattern of the gates."""
    port: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """The port of the page on this machine (default: any free one)."""
    token: Unset[str] = None
    """A part of the address, at least 16 letters, digits and hyphens, so that links stay valid
    (default: a new one)."""
    no_browser: Flag = False
    """Only print the address."""


def _models(options: ExploreOptions) -> tuple[list[Any], list[str]]:
    """The models and what the page calls them."""
    folders = [*filter(None, (options.model, options.workdir))]
    if len(folders) != 1:
        raise ValueError("give the folder of a model, or --workdir with that of a run")
    if options.against is not None:
        folders.append(options.against)
    elif options.workdir is not None and (options.workdir / SOFT / "checkpoints").is_dir():
        folders.append(options.workdir / SOFT)
    from gatedjax.explore._views import open_model

    models = [open_model(folder) for folder in folders]
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return models, names


def _check(options: ExploreOptions) -> None:
    check_place(options.html)
    if options.html is not None and options.text is None:
        raise ValueError("--html shows one sentence: give it with --text")
    if options.html is not None and options.file is not None:
        raise ValueError("a page without a server has no --file: leave it out, or --html")
    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535, got {options.port}")
    token = options.token
    if token is not None and not (
        len(token) >= TOKEN and token.isascii() and token.replace("-", "").isalnum()
    ):
        raise ValueError(f"--token must have at least {TOKEN} letters, digits and hyphens")


def _run(options: ExploreOptions) -> None:
    from gatedjax.explore._engine import Explorer

    _check(options)
    explorer = Explorer(*_models(options), tokenized=options.tokenized)
    for name in ("file", "html"):
        if getattr(options, name) is not None:
            explorer.check_gates(f"--{name}")
    table = _table(options)
    if options.html is None or options.text is None:
        _serve(options, explorer, table)
        return
    from gatedjax.explore._offline import offline_page

    page = offline_page(explorer, options.text)
    write_atomic(options.html, page)
    say(f"wrote {options.html} ({len(page) / 1000:,.0f} kB)")


def _table(options: ExploreOptions) -> Any:
    """Labelled texts to browse: those that were given, or the demo's."""
    from gatedjax.text._read import Columns, open_table

    name = options.file
    if name is None and options.workdir is not None and options.html is None:
        from gatedjax.text._run import data_of

        name = EMBEDDED if data_of(options.workdir) == EMBEDDED else None
    if name is None:
        return None
    columns = Columns((options.column,), options.label)
    return open_table(name, columns, encoding=options.encoding, split="test")


def _serve(options: ExploreOptions, explorer: Any, table: Any) -> None:
    from gatedjax.explore._sentences import read_sentences
    from gatedjax.explore._server import Server
    from gatedjax.explore._session import Session

    warm = threading.Thread(target=explorer.warm_up, daemon=True)

    def read() -> Any:
        # first the sentence that is typed, then those of the file
        warm.join()
        return read_sentences(explorer, table)

    session = Session(explorer, None if table is None else read)
    with Server(session.ask, port=options.port, token=options.token) as server:
        warm.start()
        address = server.address + fragment(options.text)
        say(f"{address}\nThe page is for this machine alone. Ctrl-C stops it.")
        try:
            with contextlib.nullcontext() if options.no_browser else _opened(address):
                server.serve_forever()
        except KeyboardInterrupt:
            say("stopped", file=sys.stderr)
        finally:
            if not session.close(_SECONDS):
                # a thread compiles, which takes seconds; Python would wait, then abort
                os._exit(0)


def fragment(text: str | None) -> str:
    """What of an address makes the page show a text first."""
    from urllib.parse import quote

    return "" if text is None else f"#text={quote(text, safe='')}"


@contextlib.contextmanager
def _opened(address: str) -> Iterator[None]:
    """Opens a browser at a file that leads to the address, and removes the file at the end.

    Everybody on the machine can read the command line of the browser. It names only the file, which
    nobody but its owner can read, because the address holds the token.
    """
    handle, name = tempfile.mkstemp(prefix="gatedjax-", suffix=".html")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(_REDIRECT.format(html.escape(address)))
        # in a thread of its own: a browser in a terminal takes it until it is closed
        threading.Thread(target=_show, args=(Path(name).as_uri(),), daemon=True).start()
        yield
    finally:
        Path(name).unlink(missing_ok=True)


_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={0}">
<title>Gate explorer</title>
<a href="{0}">Gate explorer</a>
"""


def _show(address: str) -> None:
    try:
        found = webbrowser.open(address)
    except webbrowser.Error:
        found = False
    if not found:
        say("No browser was found: open the address above in one.", file=sys.stderr)


def main(args: list[str]) -> int:
    """Runs the command; 0, or 2 for what cannot be done."""
    options = parse(ExploreOptions, args, f"{program()} explore")
    with refusals({"columns.inputs must": "--column must"}):
        _run(options)
    return 0
