"""Commands in a terminal: blocks and tables for people, never wider than the terminal."""

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import numpy as np
import pytest

from gatedjax._commands._lines import show
from gatedjax._utils.terminal import count_columns
from gatedjax.text import TextClassifier
from gatedjax.training import CheckpointStore
from tests._programs import environment
from tests.text._own import TEXTS, write_csv

LONG = "a film that is dull " * 5


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ({"label": "good", "probability": 0.918, "read": ["warm"], "share": 0.25},
         "  good 0.92\n  read 25% of the words: warm\n"),
        ({"label": 3, "probability": 0.5, "read": [], "share": 0, "note": "nothing"},
         "  3 0.50\n  read 0% of the words: none\n  note: nothing\n"),
        ({"label": None, "probability": 0.5, "read": [], "share": 0}, "  no label\n"),
        ({"labels": ["a", "b"], "probabilities": [0.9, 0.5], "read": ["x"], "share": 1,
          "unknown": ["y", "z"]},
         "  a 0.90, b 0.50\n  read 100% of the words: x\n  unknown: y, z\n"),
        ({"labels": [], "probabilities": [], "read": [], "share": 0}, "  no label\n"),
        ({"value": 3.25, "read": ["x"], "share": 1}, "  3.25\n"),
        ({"words": ["in", "Paris"], "tags": ["O", "B-LOC"], "probabilities": [1, 1]},
         "  in/O Paris/B-LOC\n"),
        ({"label": "same", "probability": 1, "read": [["a", "b"], ["c"]], "share": 0.5},
         "  read 50% of the words: a, b | c\n"),
        ({"error": "not utf-8: byte 0xe9"}, "  error: not utf-8: byte 0xe9\n"),
        ({"label": "\x1b[31m", "probability": 1, "read": [LONG], "share": 1},
         "  \\x1b[31m 1.00\n"),
    ],
)  # fmt: skip
def test_every_kind_of_prediction_is_a_block(line, wanted, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    show(LONG, line)
    out = capsys.readouterr().out
    assert out.startswith("a film that is dull")
    assert wanted in out
    assert out.endswith("\n\n")
    assert max(map(count_columns, out.splitlines())) <= 40


PROGRAM = """
import json, sys
from gatedjax.__main__ import main
for args in json.loads(sys.argv[1]):
    assert main(args) == 0, args
    print("<end>")
"""


def in_terminal(folder, *commands, columns):
    """What each command prints in a terminal, all of them in one process."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {k: v for k, v in environment().items() if k not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    with subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                          stdout=side, stderr=subprocess.PIPE) as process:  # fmt: skip
        os.close(side)
        parts = []
        with contextlib.suppress(OSError):  # the end of a terminal on Linux
            while part := os.read(main, 4096):
                parts.append(part)
        os.close(main)
    out = b"".join(parts).decode().replace("\r\n", "\n")
    assert process.returncode == 0, out
    return out.split("<end>\n")[:-1]


@pytest.mark.slow
def test_a_terminal_gets_blocks_and_tables_that_are_no_wider(tmp_path):
    TextClassifier.train(TEXTS, share=0.3).save(tmp_path / "model")
    rows = [(f"{LONG * 3}{n}", "good" * (n % 2) * 20 or "bad") for n in range(18)]
    write_csv(tmp_path / "reviews.csv", rows)
    store = CheckpointStore(tmp_path / "run" / "checkpoints")
    record = {
        "identity": {"settings": {"train": {"best_metric": "macro_f1"}}},
        "runs": [{"best_metrics": {"macro_f1": 0.123456}, "best_step": 10_000}],
    }
    parameters = {"w": np.zeros(3)}
    store.save(10_000, record, state=parameters, best=parameters)
    store.close()
    texts = ["dull film", LONG, "电影非常好看" * 9, "caf\udce9", "\x07"]
    commands = [["predict", "model", *texts], ["predict", "model", "dull film", "--json"]]
    commands += [line.split() for line in ("look reviews.csv", "checkpoints ls run", "data list")]
    shown, line, *tables = in_terminal(tmp_path, *commands, columns=60)
    blocks = shown.split("\n\n")
    assert blocks[0].startswith("dull film\n  bad 0.")
    assert "\n  read 50% of the words: dull" in blocks[0]
    assert blocks[3] == "line 4\n  error: not utf-8: byte 0xe9"
    assert "\x07" not in shown
    assert json.loads(line)["label"] == "bad"
    for part, table in zip(("18 texts", "10000", "snli"), tables, strict=True):
        assert part in table.replace(",", "")
    for out in (shown, *tables):
        assert max(map(count_columns, out.splitlines())) <= 60, out
