"""The sentences of three authors that are part of the package."""

import csv
import gzip
import io
import zlib
from importlib import resources

import pytest

from gatedjax import data

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def packed():
    return resources.files("gatedjax.data.sets").joinpath("demo.csv.gz").read_bytes()


@pytest.fixture(scope="module")
def sources():
    return {split: data.load("demo", split) for split in SPLITS}


def test_each_line_of_the_file_is_an_example_of_its_split_in_order(packed, sources):
    # the file whose sentences were found to be whole, without names, and each in one split
    assert zlib.crc32(packed) == 0x4A98048B
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode("ascii"))))
    for split, source in sources.items():
        rows = [line for line in lines if line["split"] == split]
        assert [(row["text"], row["book"]) for row in rows] == [
            (example["text"], example["book"]) for example in source
        ]
        names = source.info.class_names
        assert [row["author"] for row in rows] == [names[example["label"]] for example in source]
    assert len(lines) == sum(map(len, sources.values()))


def test_examples_are_words_of_the_sentence_and_belong_to_the_caller(sources):
    example = sources["test"][0]
    assert "".join(example["tokens"]) == example["text"].replace(" ", "")
    example["label"] = None
    assert data.load("demo", "test")[0]["label"] is not None
    assert data.load("demo", "train_full")[0] == sources["train"][0]
