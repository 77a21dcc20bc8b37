"""The sentences of three authors that are part of the package."""

import csv
import gzip
import io
import itertools
import re
from importlib import resources

import pytest

from gatedjax import data

SPLITS = ("train", "validation", "test")
BOOKS = {
    "Little Women": "Alcott",
    "White Fang": "London",
    "Treasure Island": "Stevenson",
    "Kidnapped": "Stevenson",
}


@pytest.fixture(scope="module")
def packed():
    return resources.files("gatedjax.data.sets").joinpath("demo.csv.gz").read_bytes()


@pytest.fixture(scope="module")
def sources():
    return {split: data.load("demo", split) for split in SPLITS}


def test_each_line_of_the_file_is_an_example_of_its_split_in_order(packed, sources):
    assert len(packed) <= 400_000
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode("ascii"))))
    for split, source in sources.items():
        rows = [line for line in lines if line["split"] == split]
        assert [(row["text"], row["book"]) for row in rows] == [
            (example["text"], example["book"]) for example in source
        ]
        names = source.info.class_names
        assert [row["author"] for row in rows] == [names[example["label"]] for example in source]
    assert len(lines) == sum(map(len, sources.values()))


def test_the_books_are_of_their_authors_and_in_each_split(sources):
    for source in sources.values():
        names = source.info.class_names
        assert {example["book"]: names[example["label"]] for example in source} == BOOKS


def test_no_sentence_is_in_two_splits_or_twice(sources):
    texts = [
        re.sub(r"\W+", " ", example["text"].lower()).strip()
        for example in itertools.chain(*sources.values())
    ]
    assert len(set(texts)) == len(texts)


def test_sentences_are_whole_and_have_no_names_or_marks_of_a_tokeniser(sources):
    heroes = r"\b(Meg|Jo|Beth|Amy|Laurie|Marmee|Fang|Weedon|Beaver|Kiche|Silver|Flint|Alan|Breck)\b"
    for example in itertools.chain(*sources.values()):
        text = example["text"]
        words = re.findall(r"[A-Za-z]+(?:['-][A-Za-z]+)*", text)
        assert 10 <= len(words) <= 40, text
        assert re.fullmatch(r'"?[A-Z].*[.!?]"?', text), text
        assert text.count('"') % 2 == 0, text
        assert not re.search(heroes, text), text
        assert not re.search(r"``|''|-LRB-|-RRB-| n't| [,.;:!?]|  |\d|[A-Z]{2}", text), text


def test_examples_are_words_of_the_sentence_and_belong_to_the_caller(sources):
    example = sources["test"][0]
    assert "".join(example["tokens"]) == example["text"].replace(" ", "")
    example["label"] = None
    assert data.load("demo", "test")[0]["label"] is not None
    assert data.load("demo", "train_full")[0] == sources["train"][0]
