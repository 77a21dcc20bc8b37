"""PTB as a stream of tokens, and its windows for truncated back-propagation."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from gatedjax import data
from gatedjax._commands.data import main as data_command
from gatedjax.data.sets import _ptb
from tests.data._same import assert_same_set

INFO = data.SourceInfo("toy", "train", ("sentence",))


def toy(words, first_id=0):
    """A stream of sentences "a b c | d e"; every letter is a word."""
    sentences = [
        {"tokens": (*part.split(), "<eos>"), "label": 0, "example_id": first_id + i}
        for i, part in enumerate(words.split("|"))
    ]
    vocabulary = data.ClosedVocabulary.build([data.Source(sentences, INFO)])
    return data.TokenStream(sentences, INFO, vocabulary=vocabulary)


@pytest.fixture
def long(np_rng):
    words = [f"w{i}" for i in np_rng.integers(0, 50, 400)]
    return toy(" | ".join(" ".join(words[i : i + 8]) for i in range(0, 400, 8)))


@pytest.fixture
def ptb_dir(tmp_path):
    """Files of 9,998 words and <unk>: with <eos> 10,000."""
    words = [f"w{i:04d}" for i in range(9_998)]
    lines = [f" {' '.join(words[i : i + 100])} <unk> \n" for i in range(0, len(words), 100)]
    (tmp_path / "ptb.train.txt").write_text("".join(lines), "utf-8")
    (tmp_path / "ptb.valid.txt").write_text(" w0001 new \n w0002 \n", "utf-8")
    (tmp_path / "ptb.test.txt").write_text(" w0003 <unk> \n", "utf-8")
    return tmp_path


# the vocabulary ------------------------------------------------------------------------------


def test_a_closed_vocabulary_has_its_words_and_no_more(tmp_path):
    words = data.ClosedVocabulary(["the", "<unk>", "<eos>"])
    assert len(words) == 3
    assert words.encode(["<eos>", "the", "cat", "<unk>"]) == [2, 0, 1, 1]
    assert words.decode([0, 2]) == ("the", "<eos>")
    assert "<pad>" not in words
    words.save(tmp_path / "v.json")
    again = data.ClosedVocabulary.load(tmp_path / "v.json")
    assert again.words == words.words
    assert again.digest() == words.digest()
    assert data.ClosedVocabulary(["<unk>", "the", "<eos>"]).digest() != words.digest()
    with pytest.raises(ValueError, match="must be a saved vocabulary"):
        data.Vocabulary.load(tmp_path / "v.json")
    data.Vocabulary(["the"]).save(tmp_path / "open.json")
    with pytest.raises(ValueError, match="must be a vocabulary of a language model"):
        data.ClosedVocabulary.load(tmp_path / "open.json")


def test_a_closed_vocabulary_is_ordered_by_count_then_alphabet():
    source = data.Source([{"tokens": ("b", "a", "c", "B", "b")}], INFO)
    assert data.ClosedVocabulary.build([source]).words == ("b", "B", "a", "c")
    assert data.ClosedVocabulary.build([source], lowercase=True).words == ("b", "a", "c")
    assert data.ClosedVocabulary.build([source], min_count=2).words == ("b",)
    assert data.ClosedVocabulary.build([source], max_size=3).words == ("b", "B", "a")


# the files -----------------------------------------------------------------------------------


def test_ptb_has_one_vocabulary_from_the_training_part(ptb_dir):
    train, valid, test = (
        data.load("ptb", split, manual_dir=ptb_dir) for split in ("train", "validation", "test")
    )
    assert isinstance(train, data.TokenStream)
    assert len(train.vocabulary) == 10_000
    assert train.vocabulary.digest() == valid.vocabulary.digest() == test.vocabulary.digest()
    assert valid.vocabulary.decode(valid.ids) == ("w0001", "<unk>", "<eos>", "w0002", "<eos>")
    assert (train.unknown, valid.unknown, test.unknown) == (0, 1, 0)
    assert (valid.ids.dtype, valid.ids.flags.writeable) == (np.int32, False)
    assert valid[0] == {
        "tokens": ("w0001", "new", "<eos>"),
        "label": 0,
        "example_id": 100_000_000,
    }
    assert len(train) == 100
    assert train.num_tokens == 9_998 + 2 * 100
    assert "official file has 42,068" in train.info.substitute
    assert train.report.reconciles
    whole = data.load("ptb", "train_full", manual_dir=ptb_dir)
    assert np.array_equal(whole.ids, train.ids)


def test_ptb_is_read_plain_packed_and_from_the_archive(ptb_dir, tmp_path_factory):
    plain = data.load("ptb", "validation", manual_dir=ptb_dir)
    packed = tmp_path_factory.mktemp("gz") / "ptb"
    packed.mkdir()
    archive = tmp_path_factory.mktemp("tgz")
    with tarfile.open(archive / "simple-examples.tgz", "w:gz") as tar:
        for name in _ptb.FILES.values():
            content = (ptb_dir / name).read_bytes()
            (packed / f"{name}.gz").write_bytes(gzip.compress(content))
            entry = tarfile.TarInfo(f"./simple-examples/data/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    for folder in (packed, packed.parent, archive):
        same = data.load("ptb", "validation", manual_dir=folder)
        assert np.array_equal(same.ids, plain.ids)
        assert same.vocabulary.digest() == plain.vocabulary.digest()
    with tarfile.open(archive / "simple-examples.tgz", "w:gz"):
        pass
    with pytest.raises(ValueError, match=r"must contain simple-examples/data/ptb.test.txt"):
        data.load("ptb", "test", manual_dir=archive)


@pytest.mark.parametrize(("extra", "count"), [("one more", "10,002"), (None, "9,998")])
def test_another_vocabulary_is_refused_with_its_size(ptb_dir, extra, count):
    path = ptb_dir / "ptb.train.txt"
    text = path.read_text("utf-8")
    changed = f"{text}{extra}\n" if extra else text.replace("w0007", "").replace("w0008", "")
    path.write_text(changed, "utf-8")
    with pytest.raises(ValueError, match=rf"must have 10,000 distinct tokens .* got {count}"):
        data.load("ptb", "test", manual_dir=ptb_dir)


def test_an_empty_file_is_refused(ptb_dir):
    (ptb_dir / "ptb.valid.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"ptb.valid.txt: .*empty"):
        data.load("ptb", "validation", manual_dir=ptb_dir)
    (ptb_dir / "ptb.valid.txt").write_bytes(b"\n\n")
    with pytest.raises(ValueError, match=r"ptb.valid.txt:1: empty line"):
        data.load("ptb", "validation", manual_dir=ptb_dir)


def test_malformed_lines_are_set_aside_and_counted(ptb_dir):
    lines = [b" w0001 ", b" caf\xe9 ", b" w0002 \0", b"", b" w0003 <eos> w0004 ", b"w0005\r"]
    (ptb_dir / "ptb.test.txt").write_bytes(b"\n".join(lines))
    test = data.load("ptb", "test", manual_dir=ptb_dir)
    assert test.vocabulary.decode(test.ids) == ("w0001", "<eos>", "w0005", "<eos>")
    assert [x["example_id"] - 200_000_000 for x in test] == [0, 5]
    assert [(q.line, q.reason[:14]) for q in test.quarantine] == [
        (2, "not utf-8: byt"),
        (3, "NUL character"),
        (4, "empty line"),
        (5, "the line has <"),
    ]
    assert test.report.reconciles
    with pytest.raises(ValueError, match=r"ptb.test.txt:2: not utf-8"):
        data.load("ptb", "test", manual_dir=ptb_dir, strict=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_prepared_set_equals_the_raw_files(ptb_dir, tmp_path_factory, capsys):
    place = str(tmp_path_factory.mktemp("tfds"))
    (ptb_dir / "ptb.test.txt").write_bytes(b" w0001 \n\n w0002 \n")
    assert data_command(["prepare", "ptb", "--manual-dir", str(ptb_dir), "--data-dir", place]) == 0
    for split in ("train", "validation", "test"):
        raw = data.load("ptb", split, manual_dir=ptb_dir)
        prepared = data.load("ptb", split, data_dir=place)
        assert_same_set(prepared, raw)
        assert np.array_equal(prepared.ids, raw.ids)
        assert prepared.vocabulary.digest() == raw.vocabulary.digest()
        assert len(prepared.quarantine) == (split == "test")
    assert data_command(["check", "ptb", "--manual-dir", str(ptb_dir)]) == 0
    assert "quarantined" in capsys.readouterr().out


# the windows ---------------------------------------------------------------------------------


def test_windows_by_hand():
    stream = toy("a b c | d e", first_id=100)  # a b c . d e .
    batches = data.LanguageModelBatches(stream, batch_size=2, num_steps=3)
    read = stream.vocabulary.decode
    assert len(batches) == 2
    first, second = batches[0], batches[1]
    assert read(first["tokens"][0]) == ("<eos>", "a", "b")
    assert read(first["targets"][0]) == ("a", "b", "c")
    assert read(first["tokens"][1]) == ("<eos>", "d", "e")
    assert read(first["targets"][1]) == ("d", "e", "<eos>")
    assert first["reset"].tolist() == [True, True]
    assert first["example_id"].tolist() == [100, 104]
    # row 0 has four tokens, row 1 three: it is over
    assert read(second["tokens"][0][:1]) == ("c",)
    assert read(second["targets"][0][:1]) == ("<eos>",)
    assert second["lengths"].tolist() == [1, 0]
    assert second["token_weight"].tolist() == [[1, 0, 0], [0, 0, 0]]
    assert second["weight"].tolist() == [1, 0]
    assert second["example_id"].tolist() == [103, -1]
    assert second["reset"].tolist() == [False, False]
    assert not second["tokens"][1].any()
    assert not second["targets"][0][1:].any()
    dtypes = {name: array.dtype for name, array in first.items()}
    assert dtypes == {
        **dict.fromkeys(("tokens", "targets", "lengths", "example_id"), np.int32),
        **dict.fromkeys(("token_weight", "weight"), np.float32),
        "reset": np.bool_,
    }


@pytest.mark.parametrize(
    ("batch_size", "num_steps"),
    [(1, 1), (1, 7), (3, 5), (7, 10), (20, 35), (5, 90), (5, 1000), (450, 3)],
)
def test_every_token_is_predicted_exactly_once_after_the_token_before_it(
    long, batch_size, num_steps
):
    batches = data.LanguageModelBatches.eval(long, batch_size=batch_size, num_steps=num_steps)
    before = np.concatenate([[long.end_id], long.ids[:-1]])
    predicted, ids = [], []
    for batch in batches.iterate(num_threads=0):
        for row in range(batch_size):
            n = batch["lengths"][row]
            assert batch["token_weight"][row].tolist() == [1] * n + [0] * (num_steps - n)
            assert batch["weight"][row] == (n > 0)
            assert (batch["example_id"][row] >= 0) == (n > 0)
            if n:
                at = batch["example_id"][row] + np.arange(n)
                assert np.array_equal(batch["targets"][row, :n], long.ids[at])
                assert np.array_equal(batch["tokens"][row, :n], before[at])
                predicted += at.tolist()
                ids.append(int(batch["example_id"][row]))
    assert sorted(predicted) == list(range(long.num_tokens))
    assert len(set(ids)) == len(ids)
    assert data.LanguageModelBatches.eval(long)[0]["tokens"].shape == (1, 35)
    total = len(batches) * batch_size * num_steps
    assert batches.padding_fraction == pytest.approx(1 - long.num_tokens / total)


def test_rows_go_on_from_window_to_window(long):
    batches = data.LanguageModelBatches(long, batch_size=3, num_steps=10)
    for step in range(len(batches) - 1):
        now, then = batches[step], batches[step + 1]
        # the last target of a window is the first input of the next
        assert np.array_equal(now["targets"][:, -1], then["tokens"][:, 0])


def test_a_step_is_a_pure_function_and_epochs_repeat(long):
    batches = data.LanguageModelBatches(long, batch_size=4, num_steps=9)
    other = data.LanguageModelBatches(long, batch_size=4, num_steps=9)
    n = len(batches)
    for step in (n - 1, 0, 5, n + 5, 10 * n):
        wanted = other[step % n]
        got = batches[step]
        assert all(np.array_equal(got[k], wanted[k]) for k in wanted)
        assert got["reset"].all() == (step % n == 0)
    assert batches.epoch(n) == 1
    made = list(batches.iterate(n - 2, n + 3))
    assert [bool(batch["reset"][0]) for batch in made] == [False, False, True, False, False]
    for step, batch in enumerate(made, n - 2):
        assert all(np.array_equal(batch[k], batches[step][k]) for k in batch)
