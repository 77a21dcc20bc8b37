"""What is absurdly large is refused in one line that states the limit."""

import io
import json
import os
import sys
import time
import tracemalloc

import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax._utils import limits as _limits
from gatedjax._utils.cli import refusals
from gatedjax._utils.limits import MOST_COLUMNS, MOST_JSON_BYTES, read_limited
from gatedjax._utils.run_files import read_json
from gatedjax.data import Vocabulary
from gatedjax.export import BadFile, read_config
from gatedjax.text._options import TextOptions, check_options
from gatedjax.text.corpus import _corpus
from gatedjax.text.corpus._tokens import split_words
from gatedjax.text.models import _tagging
from gatedjax.text.models._network import TrainedModel
from gatedjax.text.sources import _lines
from gatedjax.text.sources._open import open_table
from gatedjax.training import OptimizerConfig
from gatedjax.training.config import make_optimizer
from tests._speed import seconds_of_python
from tests.conftest import ROOT
from tests.explore._models import model

HUGE = 10**30


@pytest.mark.parametrize(
    "name", ["max_len", "min_count", "max_words", "num_steps", "batch_size", "seed"]
)
def test_options_of_training_state_their_limits(name):
    with pytest.raises(ValueError, match=rf"^{name} must be at most [\d,]+, got"):
        check_options(TextOptions(**{name: HUGE}), "text")
    check_options(TextOptions(seed=2**32 - 1), "text")


def test_optimizers_state_their_limits():
    with pytest.raises(ValueError, match="decay_every must be at most"):
        make_optimizer(OptimizerConfig(schedule="staircase", decay_every=HUGE), 10)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--draws", HUGE), ("--samples", HUGE), ("--texts", HUGE), ("--seed", HUGE), ("--seed", -1)],
)
def test_gates_report_states_its_limits(option, value, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["gates", "report", "--toy", f"{option}={value}"])
    said = capsys.readouterr()
    assert (stop.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith(f"error: {option} must be at ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "MemoryError: a size is too large"),
        (MemoryError("7 GiB"), "7 GiB"),
        (OverflowError("too large"), "too large"),
        (FileExistsError(17, "File exists", "a", None, "b"), "a and b: File exists"),
    ],
)
def test_commands_end_in_one_line_where_no_limit_was_met(error, message, capsys):
    with pytest.raises(SystemExit) as stop, refusals({}):
        raise error
    said = capsys.readouterr().err
    assert (stop.value.code, said) == (2, f"error: {message}\n")


# model folders ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model without digests, as somebody may have put it together."""
    made = model().save(tmp_path_factory.mktemp("model") / "model", overwrite=False)
    (made / "SHA256SUMS").unlink()
    return made


def changed(folder, **changes):
    path = folder / "config.json"
    before = path.read_text()
    config = json.loads(before)
    path.write_text(json.dumps({**config, **changes, "model": config["model"] | changes["model"]}))
    return path, before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"num_layers": 10**9}}, "num_layers must be at most 1,000"),
        ({"model": {"hidden": HUGE}}, "hidden must be at most 65,536"),
        ({"model": {}, "max_len": HUGE}, "max_len must be at most 1,048,576"),
    ],
)
def test_folders_with_absurd_sizes_are_refused_at_once(folder, changes, message):
    path, before = changed(folder, **changes)
    try:
        with pytest.raises(BadFile, match=message):
            TrainedModel.load(folder, ("text",))
    finally:
        path.write_text(before)


@pytest.mark.parametrize("name", ["report.json", "vocabulary.json", "config.json"])
def test_files_of_a_folder_have_a_largest_size(folder, name):
    before = (folder / name).read_bytes()
    try:
        os.truncate(folder / name, MOST_JSON_BYTES + 1)
        with pytest.raises(BadFile, match=rf"{name} must have at most 134,217,728 bytes"):
            TrainedModel.load(folder, ("text",))
    finally:
        (folder / name).write_bytes(before)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "[1]", "3"])
@pytest.mark.parametrize("name", ["report.json", "vocabulary.json"])
def test_files_that_are_no_objects_or_too_deep_are_refused(folder, name, content):
    before = (folder / name).read_bytes()
    try:
        (folder / name).write_text(content)
        with pytest.raises(BadFile, match="must be a model that this version can read"):
            TrainedModel.load(folder, ("text",))
    finally:
        (folder / name).write_bytes(before)


def test_files_of_runs_have_a_largest_size(tmp_path):
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, MOST_JSON_BYTES + 1)
    with pytest.raises(ValueError, match="must have at most 134,217,728 bytes"):
        read_json(path)
    with pytest.raises(ValueError, match="must have at most 134,217,728 bytes"):
        Vocabulary.load(path)
    with pytest.raises(BadFile, match="must have at most 134,217,728 bytes"):
        read_config(tmp_path)
    with pytest.raises(ValueError, match="at most 10 bytes"):
        read_limited("/dev/zero", 10)
    path.write_bytes(b"0123456789")
    assert read_limited(path, 10) == b"0123456789"


# texts --------------------------------------------------------------------------------------------


def test_repeated_names_are_found_in_linear_time(tmp_path):
    names = ", ".join(f'"n{i}": 0' for i in range(50_000))
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", ' + names + ', "n49999": 1}')
    began = time.process_time()
    (found,) = open_table(path)
    assert found.reason == ("not JSON: names must be different, got 'n49999' more than once")
    # a minute by counting each of them
    assert time.process_time() - began < 20 * seconds_of_python(1_000_000)


def test_tables_have_a_largest_number_of_columns(tmp_path):
    path = tmp_path / "wide.csv"
    for count in (MOST_COLUMNS, MOST_COLUMNS + 1):
        names = ["text", "label", *(f"n{i}" for i in range(count - 2))]
        path.write_text(",".join(names) + "\n" + ",".join("x" * count) + "\n")
        if count == MOST_COLUMNS:
            began = time.process_time()
            assert len(list(open_table(path))) == 1
            # two seconds by looking for each name among all
            assert time.process_time() - began < 5 * seconds_of_python(1_000_000)
        else:
            with pytest.raises(ValueError, match="at most 10,000 columns, got 10,001"):
                open_table(path)


def test_a_line_of_standard_input_is_read_as_far_as_a_line_may_be_long(monkeypatch):
    from gatedjax._commands._lines import read_piped

    asked = []

    class Stream(io.TextIOWrapper):
        def readline(self, size=-1):
            asked.append(size)
            return super().readline(size)

        def __next__(self):
            raise AssertionError("a whole line is read")

    monkeypatch.setattr(_lines, "LONGEST", 20)
    lines = "short\n" + "x" * 1000 + "\nlast"
    monkeypatch.setattr(sys, "stdin", Stream(io.BytesIO(lines.encode())))
    assert list(read_piped("utf-8")) == [
        (["short"], ""),
        (None, "longer than 20 characters"),
        (["last"], ""),
    ]
    assert set(asked) == {20}


@pytest.mark.parametrize("text", ["It's a   film -- isn't it?\t", "é " * 9, "", "x" * 30])
@pytest.mark.parametrize("most", [0, 1, 3, 100])
def test_the_first_words_are_those_of_the_whole_text(text, most):
    for long in (text, text * 4000):
        assert split_words(long, most) == split_words(long)[:most]


def test_long_texts_are_not_split_beyond_what_a_model_reads():
    made = model(max_len=5)
    text = "a dull film " * 300_000
    made.all_tokens([text])
    tracemalloc.start()
    try:
        assert made.all_tokens([text]) == (("a", "dull", "film", "a", "dull"),)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # the text itself is copied once or twice; its words would have ten times its size
    assert peak < 3 * len(text)


def test_texts_to_learn_from_are_read_as_far_as_a_model_may_read(monkeypatch):
    monkeypatch.setattr(_corpus, "MOST_LENGTH", 3)
    table = open_table([("a b c d e", "x"), ("f", "y")])
    read = _corpus.read_corpus(table, _corpus.Numbers(lowercase=True))
    assert [len(row) for row in read.texts[0]] == [3, 1]


def test_sentences_to_tag_have_a_largest_number_of_words(monkeypatch):
    monkeypatch.setattr(_tagging, "MOST_LENGTH", 3)
    monkeypatch.setattr(
        _tagging, "word_probabilities", lambda _, read: [np.ones((3, 1))] * len(read)
    )
    short, *failures = _tagging.tag_sentences(model(), ["a b c", "a b c d", ["a"] * 4])
    assert short.words == ("a", "b", "c")
    messages = [failure.error for failure in failures]
    assert messages == ["a sentence must have at most 3 words, got more"] * 2


@pytest.mark.slow
def test_the_docs_state_the_limits():
    page = (ROOT / "docs" / "own_text_limits.md").read_text(encoding="utf-8")
    for name in (
        *("CHARACTERS", "COLUMNS", "LENGTH", "WORDS", "WIDTH", "LAYERS", "BATCH", "SEED"),
        "JSON_BYTES",
    ):
        assert f" {getattr(_limits, f'MOST_{name}'):,} " in page, name
