"""Runs the README with the gatedjax of this environment: python -I readme.py README.md.

It writes into the folders commands/ and programs/ of the current folder, because both train the
same model: the README shows them as alternatives.
"""

import contextlib
import csv
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import gatedjax
from gatedjax import data

BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```$(?:\s+It prints `(.*?)`)?", re.M | re.S)


def run_command(line: str) -> None:
    """Runs a line such as `gatedjax train reviews.csv --out model  # a comment`."""
    name, *arguments = shlex.split(line, comments=True)
    if arguments[0] == "explore":
        arguments += ["--text", "a dull film", "--no-browser"]
    print("$", shlex.join([name, *arguments]), flush=True)
    if arguments[0] == "explore":
        open_page([str(Path(sys.executable).with_name(name)), *arguments])
        return
    # The output is shown, so that a log of CI has the reason of a failure.
    subprocess.run([str(Path(sys.executable).with_name(name)), *arguments], check=True)


def open_page(command: list[str]) -> None:
    """Starts the explorer, reads its page from the printed address, and stops it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split("#")[0].strip()
        try:
            with urllib.request.urlopen(address, timeout=60) as page:
                assert b"gatedjax" in page.read()
        finally:
            # The explorer ends by itself only at a signal, as at Ctrl-C.
            server.send_signal(signal.SIGINT)


def write_texts(path: str, split: str, count: int) -> None:
    """Writes labelled texts of the embedded corpus as a CSV file."""
    examples = data.load("polarity", split)[:count]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        names = ("negative", "positive")
        writer.writerows((" ".join(e["tokens"]), names[e["label"]]) for e in examples)


def main(readme: str) -> None:
    """Writes the files that the README names, and runs its blocks in order."""
    place = Path(gatedjax.__file__).resolve()
    if not place.is_relative_to(Path(sys.prefix).resolve()):
        raise SystemExit(f"gatedjax must be installed in {sys.prefix}, got {place}")
    blocks = BLOCKS.findall(Path(readme).read_text(encoding="utf-8"))
    commands = [
        line for _, code, _ in blocks for line in code.splitlines() if line.startswith("gatedjax ")
    ]
    programs = [
        (code, expected)
        for language, code, expected in blocks
        if language == "python" or code.startswith("from gatedjax")
    ]
    if not commands or not programs:
        raise SystemExit(f"{readme} must have commands and programs, got {commands}, {programs}")
    here = Path.cwd()
    for folder in ("commands", "programs"):
        (here / folder).mkdir()
        os.chdir(here / folder)
        write_texts("reviews.csv", "train", 200)
        write_texts("test.csv", "test", 50)
    os.chdir(here / "commands")
    for line in commands:
        run_command(line)
    os.chdir(here / "programs")
    scope: dict = {}
    for code, expected in programs:
        # The block of gates uses the names that an earlier block imported.
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, readme, "exec"), scope)
        print(printed.getvalue(), end="")
        if expected and printed.getvalue().strip() != expected:
            raise SystemExit(f"the README promises {expected!r}, got {printed.getvalue()!r}")
    print(
        f"gatedjax {gatedjax.__version__}: {len(commands)} commands and {len(programs)} programs "
        "of the README ran"
    )


if __name__ == "__main__":
    main(sys.argv[1])
