"""Batches of several sequences, and byte pairs."""

import collections
import pickle

import numpy as np
import pytest

from gatedjax import data

LENGTHS = {"lengths": "tokens", "target_lengths": "targets"}


def examples(np_rng, count=40):
    sizes = np_rng.integers(0, 12, (2, count))
    sequences = {
        name: [np.arange(1, size + 1) + 100 * i for i, size in enumerate(own)]
        for name, own in zip(("tokens", "targets"), sizes, strict=True)
    }
    return sequences, np.arange(count) + 1000


def test_every_example_is_in_an_epoch_once_with_all_it_has(np_rng):
    sequences, ids = examples(np_rng)
    labels = np.arange(40) % 3
    batches = data.SequenceBatches(
        sequences, ids, lengths=LENGTHS, columns={"label": labels}, max_tokens=64, max_buckets=3
    )
    seen, shapes = collections.Counter(), set()
    for batch in batches:
        rows = batch["weight"] > 0
        shapes.add(batch["tokens"].shape)
        assert batch["tokens"].shape == batch["targets"].shape
        for name in ("label", "lengths", "target_lengths"):
            assert not batch[name][~rows].any()
        assert np.all(batch["example_id"][~rows] == -1)
        for row in np.flatnonzero(rows):
            index = batch["example_id"][row] - 1000
            seen[index] += 1
            assert batch["label"][row] == labels[index]
            for name, length in (("tokens", "lengths"), ("targets", "target_lengths")):
                size = batch[length][row]
                np.testing.assert_array_equal(batch[name][row, :size], sequences[name][index])
                assert not batch[name][row, size:].any()
    assert seen == collections.Counter(range(40))
    assert len(shapes) == len(batches.edges) <= 3
    for rows, width in shapes:
        assert rows * width <= 64 or rows == 1
        assert rows < 8 or rows % 8 == 0
    assert 0 < batches.padding_fraction < 1
    plain = {"batch_size": 16, "bucket_edges": (12,), "shuffle": False}
    batches = data.SequenceBatches(sequences, ids, lengths=LENGTHS, **plain).eval()
    order = [b["example_id"][b["weight"] > 0] for b in batches.iterate()]
    np.testing.assert_array_equal(np.concatenate(order), ids)


TEXTS = ["Two men, one dog.", "Zwei Männer, ein Hund.", "a  b c½", "Der Hund läuft."] * 5


def test_byte_pairs_lose_nothing_of_a_text(tmp_path):
    pytest.importorskip("tokenizers")
    bpe = data.BytePairs.train(TEXTS, 60)
    assert 4 < len(bpe) <= 60
    for text in TEXTS[:4]:
        ids = bpe.encode(text)
        assert bpe.decode(ids) == text
        assert bpe.decode([2, *ids, 3, 0]) == text
        assert min(ids) > 3
    assert bpe.encode_all(TEXTS[:2]) == [bpe.encode(TEXTS[0]), bpe.encode(TEXTS[1])]
    assert bpe.encode("") == []
    assert bpe.encode("☃")[-1] == 1  # unknown
    assert bpe.encode("La\u0308uft") == bpe.encode("Läuft")
    pieces = bpe.pieces(bpe.encode("men, dog"))
    assert "".join(pieces) == "▁men,▁dog"
    ids = bpe.encode("men, dog")
    assert bpe.words(ids)[-1] == 1
    assert bpe.words(ids[pieces.index(",") :])[0] == 0  # of a part that begins inside a word
    with pytest.raises(ValueError, match=f"ids must be below {len(bpe)}, got 999"):
        bpe.pieces([999])


@pytest.mark.parametrize("way", ["made", "saved", "pickled"])
def test_reserved_pieces_in_a_text_are_characters_like_others(way, tmp_path):
    pytest.importorskip("tokenizers")
    texts = ["strike <s> out </s> , <pad> it", "a <unk> ▁ b▁c ▁▁", "<s><pad></s>", "</s>", "▁"]
    bpe = data.BytePairs.train(texts * 3, 90)
    if way == "saved":
        bpe.save(tmp_path / "bpe.json")
        bpe = data.BytePairs.load(tmp_path / "bpe.json")
    elif way == "pickled":
        bpe = pickle.loads(pickle.dumps(bpe))
    for text, ids in zip(texts, bpe.encode_all(texts), strict=True):
        assert ids == bpe.encode(text)
        assert min(ids) > 3
        assert bpe.decode(ids) == text
    ids, places = bpe.encode_words(["</s>", "b▁c", "▁"])
    assert (bpe.decode(ids), min(ids) > 3) == ("</s> b▁c ▁", True)
    assert bpe.words(ids) == places
    assert bpe.decode(bpe.encode("b\ufdd0c")) == "bc"  # what stands for "▁" inside is unknown
    assert "".join(bpe.pieces(ids)) == "▁</s>▁b▁c▁▁"


def test_pieces_of_known_words_name_their_word():
    pytest.importorskip("tokenizers")
    bpe = data.BytePairs.train(TEXTS, 60)
    words = ["Two", "men", ",", "one", "dog", "."]
    ids, places = bpe.encode_words(words, [w in ",." for w in words])
    assert ids == bpe.encode("Two men, one dog.")
    for number, word in enumerate(words):
        own = [i for i, place in zip(ids, places, strict=True) if place == number]
        assert "".join(bpe.pieces(own)).removeprefix("▁") == word
    assert places == sorted(places)
    _, places = bpe.encode_words([",", "☃", "x"], [False, False, True])
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}
    assert bpe.encode_words([]) == ([], [])
    with pytest.raises(ValueError, match="glued must have length 6, got 1"):
        bpe.encode_words(words, [True])


def test_a_vocabulary_is_saved_as_it_is_and_others_are_refused(tmp_path):
    pytest.importorskip("tokenizers")
    bpe = data.BytePairs.train(TEXTS, 60)
    bpe.save(tmp_path / "a" / "bpe.json")
    again = data.BytePairs.load(tmp_path / "a" / "bpe.json")
    assert again.digest() == bpe.digest()
    assert again.encode(TEXTS[0]) == bpe.encode(TEXTS[0])
    assert data.BytePairs.train(TEXTS, 60).digest() == bpe.digest()  # nothing is drawn
    assert data.BytePairs.train(TEXTS, 40).digest() != bpe.digest()
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match=r"bad.json: the text must be a vocabulary of BytePairs"):
        data.BytePairs.load(tmp_path / "bad.json")
    with pytest.raises(FileNotFoundError):
        data.BytePairs.load(tmp_path / "none.json")
    with pytest.raises(ValueError, match="vocab_size must be at least 5"):
        data.BytePairs.train(TEXTS, 4)
    import tokenizers

    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    other.save(str(tmp_path / "other.json"))
    with pytest.raises(ValueError, match="tokenizer must have the first pieces"):
        data.BytePairs.load(tmp_path / "other.json")
