"""`gatedjax translate`: a run and its export translate alike."""

import errno
import io
import os

import numpy as np
import pytest

from gatedjax import data, export
from gatedjax.__main__ import main
from gatedjax._utils.terminal import UNREAD
from gatedjax.models import SSANTranslator, SSANTranslatorConfig
from gatedjax.models.ssan.translation import STOP
from gatedjax.text.models._translator import SearchConfig, Translator, encode, translate_texts
from tests import refusals
from tests._grouped import grouped
from tests._programs import Plugin
from tests._streams import unread
from tests.text._own import refused
from tests.text._runs import LINES, translator_run

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run and its export."""
    place = tmp_path_factory.mktemp("translator")
    run, out = translator_run(place / "run"), place / "model"
    assert main(["export", str(run), "--out", str(out)]) == 0
    return run, out


@pytest.mark.slow
def test_the_run_and_the_export_translate_alike(folders, capsys, monkeypatch):
    given, shown, compiled = f"{LINES[0]}\r\n\n{LINES[1]}\n", [], []
    for folder, mark in zip(folders, ("", "\ufeff"), strict=True):  # no part of a sentence
        monkeypatch.setattr("sys.stdin", io.StringIO(mark + given))
        assert main(["translate", str(folder)]) == 0
        shown.append(capsys.readouterr().out)
        compiled.append(Plugin.running.counts.total())
    assert shown[0].count("\n") == 3
    assert shown[0].split("\n")[1] == ""
    assert shown[1] == shown[0]
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    with unread() as stream, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", stream)
        with pytest.raises(SystemExit, match=str(UNREAD)):
            main(["translate", str(folders[0])])
    # their networks are equal
    assert Plugin.running.counts.total() == compiled[1] == compiled[0]


def test_an_export_has_the_mean_that_the_run_was_tested_with(folders, capsys, tmp_path):
    run, out = folders
    config = export.read_config(out)
    assert config["gatedjax"] == {"kind": "translation", "format": 1}
    assert export.read_file(out, "bpe.json") == (run / "bpe.json").read_bytes()
    assert "mean of the parameters in checkpoints 1, 2" in (out / "README.md").read_text()
    mean, last = export.load(out)[0], tmp_path / "last"
    # the run's parameters are those of its first step, times the step
    assert main(["export", str(run), "--out", str(last), "--average", "1"]) == 0
    assert capsys.readouterr().out.endswith("parameters of checkpoint 2\n")
    one, other = (tree["encoder"]["embed"]["embedding"] for tree in (mean, export.load(last)[0]))
    np.testing.assert_allclose(one * 2, other * 1.5, rtol=1e-6)
    args = ["export", str(run), "--out", str(tmp_path / "no")]
    assert "--average must be at least 1, got 0" in refused([*args, "--average", "0"], capsys)
    assert main([*args, "--average", "2", "--step", "1"]) == 2
    assert "--average or --step must be left out, got both" in capsys.readouterr().err


def test_what_cannot_be_translated_is_refused(folders, capsys, tmp_path, monkeypatch):
    run, out = map(str, folders)
    other = tmp_path / "other.json"
    data.BytePairs.train(["quite another text"], 30).save(other)
    for args, message in (
        ([out, "--average", "2"], "--average must be left out except for the work folder of a run"),
        ([out, "--bpe", str(other)], f"must be the vocabulary that {out} was trained with"),
        ([run, "--beam-size", "0"], "error: --beam-size must be at least 1, got 0"),
        ([str(tmp_path)], "must be the folder of a model"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO("A dog runs.\n"))
        assert message in refused(["translate", *args], capsys)


def test_options_of_the_search_and_lines_reach_it_as_they_are(
    folders, capsys, tmp_path, monkeypatch
):
    def same(translator, texts):
        assert search == {name: getattr(translator.search, name) for name in search}
        return texts

    search = {"beam_size": 3, "length_penalty": 0.25, "batch_sentences": 7}
    options = [word for name, value in search.items() for word in (f"--{name}", str(value))]
    given, references = "a dog runs\u2028here\r\n", tmp_path / "references.txt"
    references.write_text(f"\ufeff{given}", encoding="utf-8", newline="")
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    monkeypatch.setattr("gatedjax._commands.translate.translate_texts", same)
    assert main(["translate", str(folders[1]), *options, "--references", str(references)]) == 0
    out, err = capsys.readouterr()
    assert out == given.replace("\r", "")
    assert err.startswith("BLEU 100.00 ")


def test_a_text_and_its_translation_fit_into_a_table_of_positions():
    class Silent(Translator):
        def decode(self, params, batch):
            return np.full((len(batch["tokens"]), 1), STOP)

    pieces = data.BytePairs.train(LINES, 40)
    (ids,) = encode(pieces, LINES[:1])
    for most in (len(ids) + 4, len(ids) + 3):
        config = grouped(SSANTranslatorConfig, positions="learned", max_length=most)
        model = SSANTranslator(config, len(pieces))
        translator = Silent(model, {}, pieces, SearchConfig(extra=4))
        if most == len(ids) + 4:
            assert translate_texts(translator, LINES[:1]) == [""]
    message = f"at most {len(ids) - 1} pieces|max_length is {most}|4 more|got {len(ids)}"
    refusals.refused(lambda: translate_texts(translator, LINES[:1]), message)


@pytest.mark.slow
def test_faults_of_the_input_and_the_references_are_one_line(
    folders, capsys, tmp_path, monkeypatch
):
    out, references = str(folders[1]), tmp_path / "references.txt"
    for encoding, errors in (("ascii", "surrogateescape"), ("utf-8", "strict")):
        stream = io.TextIOWrapper(io.BytesIO(b"\xc3\xa9\n \xff dog\n"), encoding, errors)
        monkeypatch.setattr("sys.stdin", stream)
        assert "line 2 of the input must be UTF-8" in refused(["translate", out], capsys)
    references.write_bytes(b"A \xff dog\n")
    args = ["translate", out, "--references", str(references)]
    assert f"{references} must be UTF-8" in refused(args, capsys)
    references.write_bytes(b"")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "as many lines as the input, 0, and at least one, got 0" in refused(args, capsys)


@pytest.mark.slow
def test_a_full_standard_output_is_an_error_in_one_line(folders, capsys, monkeypatch):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{LINES[0]}\n"))
    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(SystemExit, match="2"):
        main(["translate", str(folders[1])])
    assert capsys.readouterr().err == "error: standard output: No space left on device\n"
