"""Cloze questions as columns and batches: ids, characters, places, buckets."""

import numpy as np
import pytest

from gatedjax import data
from gatedjax.data.batches._encode import occurrences, whole_occurrences
from gatedjax.data.sets import _cloze

INFO = data.SourceInfo("toy", "train", _cloze.CLASSES)
WORDS = [f"w{i}" for i in range(30)]


def make(n, seed=0, candidates=4, longest=40):
    rng = np.random.default_rng(seed)
    examples = []
    for i in range(n):
        document = " ".join(rng.choice(WORDS, rng.integers(1, longest)))
        query = rng.choice(WORDS, rng.integers(1, 12)).tolist()
        query.insert(int(rng.integers(len(query) + 1)), "@placeholder")
        options = [" ".join(rng.choice(WORDS, rng.integers(1, 3))) for _ in range(candidates)]
        answer = options[int(rng.integers(candidates))] if i % 7 else "nobody"
        made = _cloze.question(document, " ".join(query), answer, options)
        examples.append(_cloze.example(made, 1000 + i))
    return data.Source(examples, INFO)


@pytest.fixture(scope="module")
def source():
    return make(83)


@pytest.fixture(scope="module")
def vocabulary(source):
    return data.cloze_vocabulary([source])


@pytest.fixture(scope="module")
def encoded(source, vocabulary):
    return data.encode_cloze(source, vocabulary)


@pytest.fixture(scope="module")
def spelt(vocabulary):
    return data.Characters.build(vocabulary).table(vocabulary)


def test_the_vocabulary_has_documents_queries_and_markers(source, vocabulary):
    text = {w for x in source for w in (*x["tokens"], *x["query"])}
    assert set(vocabulary.words[2:]) == text | {"@begin", "@end", "@placeholder"}
    assert "@placeholder" in text
    cased = dict(source[0], tokens=("A", "a", "A"), query=("@placeholder",))
    few = data.cloze_vocabulary([[cased]], lowercase=False, max_size=4)
    assert few.words[2:] == ("A", "@begin")


def test_encoding_looks_up_words_and_finds_the_first_placeholder(source, vocabulary, encoded):
    for i, example in enumerate(source):
        assert vocabulary.decode(encoded.documents[i]) == example["tokens"]
        query = vocabulary.decode(encoded.queries[i])
        assert query == ("@begin", *example["query"], "@end")
        assert query.index("@placeholder") == encoded.cloze[i] >= 1
        assert encoded.example(i) == example
    assert encoded.labels.tolist() == [x["label"] for x in source]
    assert encoded.candidates.tolist() == [len(x["candidates"]) for x in source]
    several = dict(source[0], query=("@placeholder", "a", "@placeholder"))
    assert data.encode_cloze(data.Source([several], INFO), vocabulary).cloze.tolist() == [1]
    none = dict(source[0], query=("a",))
    with pytest.raises(ValueError, match=r"example 1000 must have '@placeholder'"):
        data.encode_cloze(data.Source([none], INFO), vocabulary)


def test_occurrences_are_the_tokens_that_equal_any_of_a_candidates(source, encoded):
    for i, example in enumerate(source):
        want = [
            [c, place]
            for c, candidate in enumerate(example["candidates"])
            for place, token in enumerate(example["tokens"])
            if token in candidate
        ]
        assert encoded.occurrences[i].tolist() == want
    assert occurrences(("A", "a"), [("a",)]).tolist() == [[0, 1]]  # case tells them apart
    assert occurrences(("x",), [("a",)]).shape == (0, 2)


def test_whole_candidates_count_where_all_of_their_tokens_follow_each_other(source, vocabulary):
    encoded = data.encode_cloze(source, vocabulary, whole_candidates=True)
    lengths = set()
    for example, where in zip(source, encoded.occurrences, strict=True):
        wanted, tokens = [], example["tokens"]
        for i, candidate in enumerate(example["candidates"]):
            n, places = len(candidate), set()
            for start in range(len(tokens) - n + 1):
                if all(tokens[start + k] == candidate[k] for k in range(n)):
                    places.update(range(start, start + n))
                    lengths.add(n)
            wanted += [[i, place] for place in sorted(places)]
        assert where.tolist() == wanted
    assert lengths == {1, 2}
    assert encoded.occurrences[0].dtype == np.int32
    # Places that overlap count once, and the end of a truncated document has no half of a place.
    assert whole_occurrences(["a"] * 3, [("a", "a")]).tolist() == [[0, 0], [0, 1], [0, 2]]
    question = _cloze.example(_cloze.question("b a b", "@placeholder", "a b", ["a b"]), 0)
    for most, count in ((3, 2), (2, 0)):
        cut = data.encode_cloze(
            data.Source([question], INFO), vocabulary, max_doc_len=most, whole_candidates=True
        )
        assert len(cut.occurrences[0]) == count


def test_a_cut_document_may_lose_its_answer(source, vocabulary, encoded):
    short = data.encode_cloze(source, vocabulary, max_doc_len=5)
    assert short.document_lengths.max() == 5
    assert short.cut == int((encoded.document_lengths > 5).sum()) > 0
    for full, cut in zip(encoded.occurrences, short.occurrences, strict=True):
        assert cut.tolist() == full[full[:, 1] < 5].tolist()
    assert not encoded.answerable.all()
    assert short.answerable.sum() < encoded.answerable.sum()
    assert not (short.answerable & ~encoded.answerable).any()
    with pytest.raises(ValueError, match="max_doc_len must be at least 1, got 0"):
        data.encode_cloze(source, vocabulary, max_doc_len=0)


def test_fractions_are_nested_and_keep_the_order(encoded):
    ids = [encoded.fraction(share, seed=3).example_ids.tolist() for share in (0.5, 0.75, 1.0)]
    assert [len(x) for x in (*ids, encoded.fraction(1e-3))] == [42, 62, 83, 1]
    assert set(ids[0]) < set(ids[1]) < set(ids[2])
    assert all(x == sorted(x) for x in ids)
    assert ids[0] != encoded.fraction(0.5, seed=4).example_ids.tolist()
    part = encoded.fraction(0.5, seed=3)
    assert part.example(0)["example_id"] == part.example_ids[0]
    with pytest.raises(ValueError, match=r"share must be in \(0, 1\]"):
        encoded.fraction(0.0)


@pytest.mark.parametrize("budget", [1, 2, 5, 8])
def test_shapes_hold_every_question_within_the_budget(encoded, vocabulary, budget):
    other = data.encode_cloze(make(20, seed=1, candidates=6, longest=60), vocabulary)
    empty = other.take(np.arange(0))
    shapes = data.plan_cloze_shapes([encoded, empty, other], max_shapes=budget, batch_size=4)
    assert 1 <= len(shapes) <= budget
    for part in (encoded, other):
        batches = data.ClozeBatches.eval(part, batch_size=4, shapes=shapes)
        ids = np.concatenate([b["example_id"][b["weight"] > 0] for b in batches])
        assert sorted(ids) == sorted(part.example_ids)
        assert {b["document"].shape[1] for b in batches} <= {s.document for s in shapes}
    one = data.plan_cloze_shapes([encoded], max_shapes=1)
    assert one[0].document == encoded.document_lengths.max()
    assert one[0].query == encoded.query_lengths.max()
    few = data.ClozeBatches(encoded, batch_size=4, max_shapes=1).padding_fraction
    assert data.ClozeBatches(encoded, batch_size=4, max_shapes=8).padding_fraction < few


def test_shapes_have_the_fewest_cells_of_all_batches(vocabulary):
    made = [
        _cloze.question("w1 " * n, "@placeholder" + " w1" * (q - 3), "w1", ["w1"])
        for n, q in ((10, 6), (10, 6), (12, 3))
    ]
    examples = [_cloze.example(one, i) for i, one in enumerate(made)]
    encoded = data.encode_cloze(data.Source(examples, INFO), vocabulary)
    found = [
        [(shape.document, shape.query) for shape in data.plan_cloze_shapes([encoded], **sizes)]
        for sizes in ({"max_shapes": 2, "batch_size": 1}, {"max_shapes": 2, "batch_size": 2})
    ]
    # 2 * 16 + 18 is less than 15 + 2 * 18; of batches of two, 15 + 18 is less than 16 + 18
    assert found == [[(10, 6), (12, 6)], [(12, 3), (12, 6)]]


def test_batches_say_what_the_questions_say(source, encoded, vocabulary, spelt):
    dense = data.ClozeBatches(encoded, batch_size=8, characters=spelt, seed=1)
    listed = data.ClozeBatches(encoded, batch_size=8, seed=1, dense_cells=0)
    by_id = {x["example_id"]: x for x in source}
    characters = data.Characters.build(vocabulary)
    seen = 0
    for batch, other in zip(dense, listed, strict=True):
        assert "candidate_positions" not in batch
        assert "occurrence" not in other
        for row in np.flatnonzero(batch["weight"]):
            seen += 1
            example = by_id[int(batch["example_id"][row])]
            n, q = int(batch["document_lengths"][row]), int(batch["query_lengths"][row])
            assert vocabulary.decode(batch["document"][row, :n]) == example["tokens"]
            assert not batch["document"][row, n:].any()
            assert vocabulary.decode(batch["query"][row, 1 : q - 1]) == example["query"]
            assert (
                batch["query"][row, batch["cloze"][row]] == vocabulary.encode(["@placeholder"])[0]
            )
            k = len(example["candidates"])
            assert batch["candidate_mask"][row].sum() == k
            assert batch["label"][row] == example["label"]
            for c in range(batch["candidate_mask"].shape[1]):
                want = []
                if c < k:
                    tokens = enumerate(example["tokens"])
                    want = [i for i, t in tokens if t in example["candidates"][c]]
                assert np.flatnonzero(batch["occurrence"][row, :, c]).tolist() == want
                places = other["candidate_positions"][row, c]
                assert places[: len(want)].tolist() == want
                assert (places[len(want) :] == -1).all()
            for name, size in (("document", n), ("query", q)):
                words = vocabulary.decode(batch[name][row, :size])
                place = batch[f"{name}_words"][row, :size]
                ids, lengths = characters.encode(words)
                assert np.array_equal(batch["word_characters"][row][place], ids)
                assert np.array_equal(batch["word_lengths"][row][place], lengths)
    assert seen == len(source)


def test_characters_are_cut_at_ten_and_unknown_ones_are_a_space():
    alphabet = data.Characters("abc")
    ids, lengths = alphabet.encode(["ab", "", "a z", "abcabcabcabc"])
    assert ids[0].tolist() == [2, 3, *[0] * 8]
    assert ids[2, :3].tolist() == [2, 1, 1]
    assert ids[3].tolist() == [2, 3, 4, 2, 3, 4, 2, 3, 4, 2]
    assert lengths.tolist() == [2, 0, 3, 10]
    assert len(alphabet) == 5
    for wrong in ("aa", "a ", ["ab"]):
        with pytest.raises(ValueError, match="alphabet must"):
            data.Characters(wrong)


def test_a_table_of_characters_has_every_word_by_id(vocabulary, spelt):
    ids, lengths = spelt
    assert ids.shape == (len(vocabulary), 10)
    assert lengths[0] == 0
    assert not ids[0].any()
    characters = data.Characters.build(vocabulary)
    assert np.array_equal(ids[5], characters.encode([vocabulary.words[5]])[0][0])
    assert not (ids[2:] == 1).any()  # every character of a known word is known
    assert data.Characters.build(data.Vocabulary(["abcdefghijz"])).alphabet == "<>abcdefghijknu"


def test_vectors_of_unknown_words_are_standard_normal_on_request(tmp_path):
    words = data.Vocabulary([f"w{i}" for i in range(400)])
    made = data.random_embeddings(words, 50, std=1.0)
    assert made[0].tolist() == [0.0] * 50
    sample = made[1:].ravel()
    assert abs(sample.mean()) < 0.02
    assert abs(sample.std() - 1) < 0.02
    assert abs(np.mean(sample**4) - 3) < 0.15
    assert np.allclose(data.random_embeddings(words, 50, std=0.5), 0.5 * made)
    path = tmp_path / "vectors.txt"
    path.write_text("w1 " + " ".join(["0.5"] * 50) + "\n")
    found = data.load_embeddings(path, words, dim=50, oov_std=1.0)
    assert np.array_equal(found.matrix[2], made[2])
    assert (found.matrix[3] == 0.5).all()
    with pytest.raises(ValueError, match="std or oov_std must be at least 0, got nan"):
        data.random_embeddings(words, 50, std=float("nan"))
