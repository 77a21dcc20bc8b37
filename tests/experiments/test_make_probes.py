"""BShift and word reordering from any sentences: what is written, read back, and refused."""

import gzip
import json

import numpy as np
import pytest

from experiments.core.config import with_changes
from experiments.ssan.__main__ import main
from experiments.ssan.config import PRESETS
from experiments.ssan.sentences import reordering, reordering_texts, restore_word
from gatedjax import data
from tests.experiments._commands import refused

TEXT = "the cat sat on a mat while some dogs ran over green hills to see old trees"
WORDS = TEXT.split()


def sentences(count):
    """Different sentences of 6 to 12 words."""
    return [[f"w{i}", *WORDS[i % 5 : i % 5 + 5 + i % 7]] for i in range(count)]


def made(folder, *more, count=60):
    path = folder / "sentences.txt"
    lines = [" ".join(words) for words in sentences(count)]
    # a sentence twice, one that is too short, and an empty line
    path.write_text("\n".join([*lines, lines[0], "too short", ""]), encoding="utf-8")
    out = folder / "out"
    args = ["make-probes", "--texts", str(path), "--out", str(out), "--held-out", "10", *more]
    assert main(args) == 0
    return out


def test_every_sentence_is_in_one_part_of_both_tasks(tmp_path):
    out = made(tmp_path)
    counts = json.loads((out / "make_probes.json").read_text())
    assert (counts["sentences"], counts["distinct"]) == (62, 60)
    wanted = {tuple(words) for words in sentences(60)}
    restored, bags = {}, {}
    for part, size in (("train", 40), ("validation", 10), ("test", 10)):
        moved = data.load("word_reordering", part, manual_dir=out)
        restored[part] = {restore_word(e["tokens"], e["insert"], e["original"]) for e in moved}
        probe = data.load("senteval_probing", part, task="bigram_shift", manual_dir=out)
        assert len(moved) == len(probe) == len(restored[part]) == counts[part]["sentences"] == size
        bags[part] = {tuple(sorted(example["tokens"])) for example in probe}
        assert bags[part] == {tuple(sorted(words)) for words in restored[part]}
        changed = [example for example in probe if tuple(example["tokens"]) not in wanted]
        swapped = [e for e in probe if probe.info.class_names[e["label"]] == "I"]
        assert len(changed) == len(swapped) == counts[part]["swapped"] > 0
    assert set().union(*restored.values()) == wanted
    assert sum(map(len, restored.values())) == len(wanted)


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first, again = made(tmp_path / "a"), made(tmp_path / "b")
    other = made(tmp_path / "c", "--seed", "1")
    for path in sorted(first.iterdir()):
        assert path.read_bytes() == (again / path.name).read_bytes()
        assert path.read_bytes() != (other / path.name).read_bytes() or path.suffix == ".json"


def test_moved_words_have_the_vectors_of_a_file_in_a_given_scale(tmp_path):
    out = made(tmp_path)
    known = np.random.default_rng(0).normal(size=(len(set(WORDS)) - 1, 4))
    words = sorted(set(WORDS) - {"sat"})
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, known, strict=True)]
    (out / "vectors.txt").write_text("".join(lines), encoding="utf-8")
    changes = {"data.manual_dir": str(out), "data.embeddings": "vectors.txt"}
    config = with_changes(PRESETS["wrd_cited"], {**changes, "model.embedding_dim": 4})
    texts = reordering_texts(config)
    table, ids = texts.embeddings, np.array(texts.vocabulary.encode(words))
    # Some of the words are in no sentence, and so they are unknown.
    vectors, known = table[ids[ids > 1]], known[ids > 1]
    assert vectors.std() == pytest.approx(1, rel=1e-5)
    np.testing.assert_allclose(vectors, known / known.std(), rtol=1e-5)
    # A word that the file lacks has a random vector, and padding has none.
    assert np.any(table[texts.vocabulary.encode(["sat"])])
    assert not np.any(table[0])
    run = reordering(config)
    assert run.facts["embedding_coverage"] == texts.coverage < 1
    assert run.task.frozen == ("encoder/embed/embedding",)
    np.testing.assert_array_equal(run.task.model.embeddings, table)
    plain = reordering(with_changes(config, {"data.embeddings": "none"}))
    assert plain.task.model.embeddings is None
    assert "embedding_coverage" not in plain.facts
    with pytest.raises(ValueError, match="vector_std must be positive and finite, got 0"):
        with_changes(config, {"data.vector_std": 0.0})


def test_documents_of_cloze_questions_have_sentences_and_their_questions_do_not(tmp_path):
    path = tmp_path / "cbt.txt"
    lines = [f"{i % 20 + 1} {' '.join(words)}" for i, words in enumerate(sentences(40))]
    lines.append("21 XXXXX sat on the mat of old trees\tcat\t\tcat|dogs")
    path.write_text("\n".join(lines), encoding="utf-8")
    args = ["make-probes", "--texts", str(path), "--out", str(tmp_path / "out"), "--form", "cloze"]
    assert main([*args, "--held-out", "5"]) == 0
    text = (tmp_path / "out" / "bigram_shift.txt").read_text()
    assert text.count("\n") == 40
    assert "XXXXX" not in text


def test_a_compressed_file_gives_the_files_of_the_plain_one(tmp_path):
    text = "\n".join(" ".join(words) for words in sentences(60)).encode()
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    for path, out in ((plain, "one"), (packed, "two")):
        args = ["make-probes", "--texts", str(path), "--out", str(tmp_path / out)]
        assert main([*args, "--held-out", "10"]) == 0
    for path in (tmp_path / "one").glob("*.txt*"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"a b c\nd \xff e\n", "a.txt, line 2 must be UTF-8, got the byte 0xff"),
        # The workers of a parallel run must collect equal names, so the file has no time in it.
        ("a.txt.gz", gzip.compress(b"a b c\n" * 99, mtime=0)[:-9], "a.txt.gz"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, data, message, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(data)
    args = ["make-probes", "--texts", str(path), "--out", str(tmp_path / "out")]
    assert message in refused(main, args, capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--held-out", "30"], "more than 60 different sentences of 6 to 49 words"),
        (["--held-out", "0"], "--held-out must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_made_is_refused_and_nothing_is_written(more, message, tmp_path, capsys):
    path = tmp_path / "sentences.txt"
    path.write_text("\n".join(" ".join(words) for words in sentences(60)), encoding="utf-8")
    args = ["make-probes", "--texts", str(path), "--out", str(tmp_path / "out"), *more]
    assert message in refused(main, args, capsys)
    assert not (tmp_path / "out").exists()
