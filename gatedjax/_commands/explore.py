"""`gatedjax explore MODEL`: a page on this machine that shows gates and can force them."""

import contextlib
import dataclasses
import html
import os
import shlex
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._commands._states import check_states
from gatedjax._utils.cli import parse, program, refusals
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import check_place, write_atomic

_SECONDS = 0.5
"""The seconds that Ctrl-C waits for each computation in progress."""
TOKEN = 16
"""The least number of characters of a token."""
SOFT = "soft"
"""The folder in which the demo of GA-Net has the run for comparison."""
EMBEDDED = "polarity"
"""The data set of the demo, which is part of gatedjax."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """Opens a page on this machine that shows the gates of a model.

    The page shows the gate of each word, its attention, and how much its removal changes the
    prediction. Press a word to force its gate. The page opens with a sentence of --file. For a
    reader it shows the attention of each hop, for a translator the alignment, for a lexicon the
    share of each word in each class or label, in the number or in the grade. For a model that was
    trained with --states it shows the texts of such a file. No data leave the machine.

    For example:
    $ gatedjax explore model --file test.csv
    $ gatedjax explore model --html page.html --text "a dull film"
    """

    model: Annotated[Unset[Path], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL]")] = None
    """The folder that `gatedjax train` or `gatedjax export` wrote, or the work folder of a run."""
    workdir: Unset[Path] = None
    """An older name of MODEL for a work folder. With it, the page of experiments.ga_net.demo also
    has the run with soft attention and the texts of the corpus."""
    against: Unset[Path] = None
    """The folder of a second model, which is shown next to the first."""
    file: Unset[str] = None
    """Labelled texts to browse, as `gatedjax train` reads them."""
    column: str = "text"
    """The column of the texts in --file."""
    label: str = "label"
    """The column of the labels in --file."""
    encoding: str = "utf-8"
    """The encoding of --file."""
    states: Unset[Path] = None
    """A file with the tokens and vectors of texts (.npz), for a model that was trained with
    --states. The page has a list of its texts."""
    text: Unset[str] = None
    """The sentence that is shown first."""
    tokenized: Flag = False
    """Take the documents for a reader as tokens that are separated by spaces."""
    html: Unset[Path] = None
    """A file for a page that needs no server and has the results for all patterns of the gates."""
    port: Annotated[int, tyro.conf.arg(help_behavior_hint="")] = 0
    """The port of the page on this machine (default: any free port)."""
    token: Unset[str] = None
    """A part of the address, at least 16 letters, digits and hyphens, so that links stay valid
    (default: a new random token)."""
    no_browser: Flag = False
    """Only print the address and open no browser."""


def _models(options: ExploreOptions) -> tuple[list[Any], list[str]]:
    """Opens the models; returns a list of them, and a list of their different names on the page."""
    folders = [*filter(None, (options.model, options.workdir))]
    if len(folders) != 1:
        raise ValueError(
            f"exactly one of MODEL and --workdir must be given, got {len(folders)} of them"
        )
    if options.against is not None:
        folders.append(options.against)
    elif options.workdir is not None and (options.workdir / SOFT / "checkpoints").is_dir():
        folders.append(options.workdir / SOFT)
    from gatedjax.explore._open import open_model

    models = [open_model(folder) for folder in folders]
    names = [folder.resolve().name for folder in folders]
    # Two models of the same name could not be distinguished on the page.
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return models, names


def _check(options: ExploreOptions) -> None:
    """Raises an error for options that are out of range or do not go together."""
    check_place(options.html, begins=b"<!doctype html>")
    if options.html is not None and options.file is not None:
        raise ValueError("--html or --file must be left out, got both: give one of the two")
    if not 0 <= options.port < 2**16:
        raise ValueError(f"--port must be in [0, 65535], got {options.port}")
    token = options.token
    if token is not None and not (
        len(token) >= TOKEN and token.isascii() and token.replace("-", "").isalnum()
    ):
        raise ValueError(
            f"--token must have at least {TOKEN} letters, digits and hyphens and no other "
            f"character, got {token!r}"
        )


def _check_page(options: ExploreOptions, models: list[Any]) -> None:
    """Raises an error unless `models` are networks that classify single texts, or without a text.

    The message says which command writes a page of another model.
    """
    from gatedjax.text._prediction import STATES, TARGETS, WITHOUT_NETWORK

    for model, folder in zip(
        models, (options.model or options.workdir, options.against), strict=False
    ):
        kind, network = getattr(model, "kind", None), getattr(model, "network", None)
        if kind == "text" and network not in WITHOUT_NETWORK:
            continue
        remedy = "leave it out, and the page is served"
        if kind in ("text", "pair", *TARGETS):
            texts = "--states FILE" if network == STATES else "TEXT"
            remedy = (
                f"{program()} explain {shlex.quote(str(folder))} {texts} --html "
                f"{shlex.quote(str(options.html))} writes a page of the model"
            )
        raise ValueError(
            f"--html must be left out for {folder}, which is no network that classifies single "
            f"texts, got {options.html}: {remedy}"
        )
    if options.text is None:
        raise ValueError(
            f"--html must be left out without --text, got {options.html}: give --text with the "
            "sentence that the page shows"
        )


def _run(options: ExploreOptions) -> None:
    from gatedjax.explore._engine import Explorer

    _check(options)
    models, names = _models(options)
    if options.html is not None:
        _check_page(options, models)
    explorer = Explorer(
        models, names, tokenized=options.tokenized, states=_read_states(options, models, names)
    )
    if options.file is not None:
        explorer.check_sentences("--file")
    table = _table(options)
    if options.html is None or options.text is None:
        _serve(options, explorer, table)
        return
    from gatedjax.explore._offline import offline_page

    page = offline_page(explorer, options.text)
    write_atomic(options.html, page)
    say(f"wrote {options.html} ({len(page) / 1000:,.0f} kB)")


def _read_states(options: ExploreOptions, models: list[Any], names: list[str]) -> Any:
    """Returns the tokens and vectors in the file --states, or None for models that read texts."""
    has_texts = options.text is not None
    reads_states = [
        check_states(model, name, options.states, has_texts=has_texts)
        for model, name in zip(models, names, strict=True)
    ]
    if options.states is None or not all(reads_states):
        return None
    from gatedjax.text._states import read_states

    return read_states(options.states)


def _table(options: ExploreOptions) -> Any:
    """Opens the labelled texts to browse, from --file or of the demo; None if there are none."""
    from gatedjax.text._read import Columns, open_table

    name = options.file
    if name is None and options.workdir is not None and options.html is None:
        from gatedjax.text._run import data_of

        # Only the data of the demo are part of gatedjax, and other data need a path.
        name = EMBEDDED if data_of(options.workdir) == EMBEDDED else None
    if name is None:
        return None
    columns = Columns((options.column,), options.label)
    return open_table(name, columns, encoding=options.encoding, split="test")


def _serve(options: ExploreOptions, explorer: Any, table: Any) -> None:
    """Serves the page until Ctrl-C."""
    from gatedjax.explore._sentences import first_sentence, read_sentences
    from gatedjax.explore._server import Server
    from gatedjax.explore._session import Session

    warm = threading.Thread(target=explorer.warm_up, daemon=True)

    def load_sentences() -> Any:
        # The sentence that the user types must not wait for the sentences of the file.
        warm.join()
        return read_sentences(explorer, table)

    def load_first() -> Any:
        return first_sentence(explorer, table)

    readers = (None, None) if table is None else (load_sentences, load_first)
    session = Session(explorer, *readers)
    with Server(session.ask, port=options.port, token=options.token) as server:
        # The programs are compiled while the browser starts and the user types.
        warm.start()
        address = server.address + make_fragment(options.text)
        say(f"{address}\nOnly this machine can open the page. Ctrl-C stops it.")
        try:
            with contextlib.nullcontext() if options.no_browser else _open_browser(address):
                server.serve_forever()
        except KeyboardInterrupt:
            say("stopped", file=sys.stderr)
        finally:
            if not session.close(_SECONDS):
                # A thread is compiling, which takes seconds. Python would wait for it and abort.
                os._exit(0)


def make_fragment(text: str | None) -> str:
    """Returns the end of an address, "#text=a%20film", with which the page opens; "" for None."""
    from urllib.parse import quote

    return "" if text is None else f"#text={quote(text, safe='')}"


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
    with refusals({"columns.inputs must": "--column must"}):
        _run(options)
    return 0
