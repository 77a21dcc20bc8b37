"""Encoding, bucket planning and batches."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from gatedjax import data

INFO = data.SourceInfo("toy", "train", ("a", "b"))


def make(lengths, seed=0):
    rng = np.random.default_rng(seed)
    examples = [
        {
            "tokens": tuple(f"w{j}" for j in rng.integers(0, 50, n)),
            "label": i % 2,
            "example_id": 1000 + i,
            "decides": tuple(bool(j % 2) for j in range(n)),
        }
        for i, n in enumerate(lengths)
    ]
    return data.Source(examples, INFO)


@pytest.fixture
def encoded(np_rng):
    source = make([0, *np_rng.integers(1, 40, 136)])
    return data.encode(source, data.Vocabulary.build([source]))


def test_encode_looks_up_every_token_and_gives_an_empty_text_one_unknown_word(encoded):
    source = encoded.source
    words = data.Vocabulary.build([source])
    assert encoded.ids[0].tolist() == [1]
    assert encoded.tokens(0) == ("<unk>",)
    for i in range(1, len(source)):
        assert words.decode(encoded.ids[i]) == source[i]["tokens"] == encoded.tokens(i)
    assert encoded.lengths.tolist() == [max(1, len(x["tokens"])) for x in source]
    assert encoded.example_ids.tolist() == [x["example_id"] for x in source]
    assert encoded.labels.dtype == encoded.lengths.dtype == encoded.ids[1].dtype == np.int32
    assert encoded.info is INFO


@pytest.mark.parametrize(("side", "window"), [("right", slice(0, 3)), ("left", slice(4, 7))])
def test_truncation_cuts_ids_words_and_extras_alike(side, window):
    source = make([7, 2])
    vocabulary = data.Vocabulary.build([source])
    encoded = data.encode(source, vocabulary, max_len=3, truncate_side=side)
    assert encoded.tokens(0) == source[0]["tokens"][window] == vocabulary.decode(encoded.ids[0])
    assert encoded.extra(0, "decides") == source[0]["decides"][window]
    assert encoded.extra(1, "label") == 1
    assert encoded.lengths.tolist() == [3, 2]
    with pytest.raises(KeyError, match="tree"):
        encoded.extra(0, "tree")


def test_another_sentence_is_not_cut_though_it_be_as_long():
    words, spoken = ("a", "b", "c", "d", "e"), ("v", "w", "x", "y", "z")
    of_words = dict.fromkeys(("decides", "is_predicate", "labels", "tags"), words)
    shared = {"tokens": words, "label": 0, "said": spoken} | of_words
    pairs = [shared | {"hypothesis": spoken[:n], "example_id": i} for i, n in enumerate((5, 4))]
    source = data.Source(pairs, INFO)
    vocabulary = data.Vocabulary.build([source])
    encoded = data.encode(source, vocabulary, max_len=3)
    assert [encoded.extra(i, "hypothesis") for i in (0, 1)] == [spoken, spoken[:4]]
    assert encoded.extra(0, "said") == spoken
    assert {encoded.extra(0, name) for name in of_words} == {words[:3]}


class Indexed:
    """Batches by step and nothing else, without an end."""

    def __getitem__(self, step):
        return {"x": np.full(2, 10 * step), "weight": np.ones(2)}


def test_batches_without_iterate_are_numbered_too():
    settings = SimpleNamespace(gates=SimpleNamespace(final_temperature=0.1))
    endless, few = Indexed(), [Indexed()[step] for step in range(4)]
    for batches in (endless, few):
        numbered = data.for_schedule(batches, settings)
        found = [(batch["x"][0], batch["step"].tolist()) for batch in numbered.iterate(1, 3)]
        assert found == [(10, [1, 1]), (20, [2, 2])]
    assert not data.for_schedule(endless, settings).one_pass
    ending = data.for_schedule(few, settings)
    assert ending.one_pass
    assert [batch["step"][0] for batch in ending.iterate(2)] == [2, 3]


@pytest.mark.slow
def test_numbered_batches_end_where_those_that_are_numbered_do(encoded):
    settings = SimpleNamespace(gates=SimpleNamespace(final_temperature=0.1))
    for made in (data.Batches.eval(encoded, batch_size=8), data.Batches(encoded, batch_size=8)):
        numbered = data.for_schedule(made, settings)
        assert (numbered.one_pass, len(numbered)) == (made.one_pass, len(made))
        assert [batch["step"][0] for batch in numbered.iterate(2, 5)] == [2, 3, 4]


def padded_total(lengths, edges):
    return sum(min(e for e in edges if e >= n) for n in lengths)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("buckets", [1, 2, 3, 4])
def test_planned_edges_are_the_best_of_all_choices(seed, buckets):
    rng = np.random.default_rng(seed)
    lengths = rng.choice(np.arange(1, 30), 9, replace=False).repeat(rng.integers(1, 9, 9))
    sizes = sorted(set(lengths.tolist()))
    best = min(
        padded_total(lengths, (*edges, sizes[-1]))
        for k in range(buckets)
        for edges in itertools.combinations(sizes[:-1], k)
    )
    edges = data.plan_buckets(lengths, buckets)
    assert len(edges) <= buckets
    assert edges[-1] == sizes[-1]
    assert list(edges) == sorted(edges)
    assert padded_total(lengths, edges) == best


def test_there_are_no_more_edges_than_lengths():
    assert data.plan_buckets([5, 5, 5], 4) == (5,)
    assert data.plan_buckets([2, 9], 4) == (2, 9)


def test_a_batch_has_texts_in_the_smallest_shape_that_fits(encoded):
    batches = data.Batches(encoded, batch_size=16, max_buckets=3)
    where = {int(e): i for i, e in enumerate(encoded.example_ids)}
    for batch in batches:
        rows, size = batch["tokens"].shape
        assert rows == 16
        smaller = max((e for e in batches.edges if e < size), default=0)
        for row in np.flatnonzero(batch["weight"]):
            i, n = where[int(batch["example_id"][row])], batch["lengths"][row]
            assert smaller < n <= size
            assert batch["tokens"][row, :n].tolist() == encoded.ids[i].tolist()
            assert not batch["tokens"][row, n:].any()
            assert batch["label"][row] == encoded.labels[i]
    types = {k: v.dtype.name for k, v in batch.items()}
    ints = dict.fromkeys(("tokens", "lengths", "label", "example_id"), "int32")
    assert types == ints | {"weight": "float32"}


def test_padding_is_the_share_of_cells_without_a_word(encoded):
    batches = data.Batches(encoded, batch_size=16, max_buckets=3)
    cells = sum(b["tokens"].size for b in batches)
    words = sum(int((b["tokens"] > 0).sum()) for b in batches)
    assert batches.padding_fraction == pytest.approx(1 - words / cells)


def test_edges_that_are_given_are_the_widths(encoded):
    fixed = data.Batches(encoded, batch_size=4, bucket_edges=(8, 64))
    assert {b["tokens"].shape for b in fixed} == {(4, 8), (4, 64)}
