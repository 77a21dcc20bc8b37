"""Arguments, names and files that cannot be used are refused by name."""

import dataclasses
import functools
import gzip

import numpy as np
import pytest

from gatedjax import data
from gatedjax.data.sets import _cloze
from gatedjax.data.text._embeddings import words_in
from tests.refusals import each_row, refused

MISSING = FileNotFoundError
INFO = data.SourceInfo("toy", "train", ("a", "b"))
PIXELS, ZEROS = np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int32)
SOURCE = data.Source([{"tokens": ("a",), "label": 0, "example_id": 7}], INFO)
OF_LABEL_2, OF_NO_LABEL = (
    data.Source([{"tokens": (), "label": label, "example_id": 7}], INFO) for label in (2, -1)
)
SENTENCES = [{"tokens": ("a", "<eos>"), "label": 0, "example_id": 3}]
ENDLESS = [{"tokens": ("a",), "label": 0, "example_id": 3}]
CLOSED = data.ClosedVocabulary(["a", "<eos>"])
WORDS = data.Vocabulary(["film", "zebra", "the"])


def encode(source=SOURCE, **options):
    return lambda: data.encode(source, data.Vocabulary(["a"]), **options)


def batches(texts=("a", "a b c"), **options):
    rows = [{"tokens": (*t.split(),), "label": 0, "example_id": i} for i, t in enumerate(texts)]
    encoded = data.encode(data.Source(rows, INFO), data.Vocabulary(["a"]))
    return lambda: data.Batches(encoded, **({"batch_size": 4} | options))


def images(pixels=PIXELS, labels=ZEROS, batch_size=1):
    def call():
        source = data.ImageSource(pixels, labels, np.arange(len(pixels)), INFO)
        return data.ImageBatches(source, batch_size=batch_size)

    return call


@functools.cache
def questions():
    """Two questions of three candidates, encoded; and how the words are spelt."""
    made = [
        _cloze.question("the cat saw a dog and a dog", "who saw @placeholder ?", "cat", options)
        for options in (["cat", "a dog", "hen"], ["cat", "dog", "the hen"])
    ]
    examples = [_cloze.example(one, 1000 + i) for i, one in enumerate(made)]
    source = data.Source(examples, data.SourceInfo("toy", "train", _cloze.CLASSES))
    vocabulary = data.cloze_vocabulary([source])
    spelt = data.Characters.build(vocabulary).table(vocabulary)
    return data.encode_cloze(source, vocabulary), spelt


def cloze(shape=None, **options):
    """Batches of questions; a shape with less room than they need in some sizes."""

    def call():
        encoded, spelt = questions()
        if shape:
            (whole,) = data.plan_cloze_shapes([encoded], max_shapes=1)
            less = {name: getattr(whole, name) - 1 for name in shape}
            options["shapes"] = [dataclasses.replace(whole, **less)]
            options.update(characters=spelt, dense_cells=0)
        return data.ClozeBatches(encoded, **({"batch_size": 2} | options))

    return call


def sequences(**options):
    rows = {name: [np.arange(1, size + 1) for size in (3, 11)] for name in ("tokens", "targets")}
    lengths = {"lengths": "tokens", "target_lengths": "targets"}
    return lambda: data.SequenceBatches(rows, np.arange(2), **({"lengths": lengths} | options))


def stream(sentences, vocabulary=CLOSED):
    return lambda: data.TokenStream(sentences, INFO, vocabulary=vocabulary)


def language(**options):
    options = {"batch_size": 1, "num_steps": 1} | options
    return lambda: data.LanguageModelBatches(stream(SENTENCES)(), **options)


def load(name, split="train", **options):
    return lambda: data.load(name, split, **options)


TABLE = {
    "encode": [
        (encode(max_len=0), "max_len|1|0"),
        (encode(truncate_side="middle"), "truncate_side|'left'|'middle'"),
        (encode(OF_LABEL_2), "label|2|7"),
        (encode(OF_NO_LABEL), "label|-1|7"),
    ],
    "Batches": [
        (batches(batch_size=0), "batch_size|1|0"),
        (batches(batch_size=None), "batch_size|1"),
        (batches(bucket_edges=(0, 5)), "bucket_edges|(0, 5)"),
        (batches(bucket_edges=()), "bucket_edges|()"),
        (batches(max_buckets=0), "max_buckets|1|0"),
        (batches(()), "texts"),
        (lambda: batches()()[-1], "step|0|-1", IndexError),
        (lambda: batches()()[1.0], "float", TypeError),
        (lambda: batches()().iterate(-1), "-1"),
        (lambda: batches()().iterate(0, -1), "0 and -1"),
        (lambda: data.plan_buckets([], 2), "lengths"),
        (lambda: data.plan_buckets([0, 3], 2), "lengths|1"),
    ],
    "ImageBatches": [
        (images(batch_size=0), "batch_size|1|0"),
        (images(PIXELS[:0], ZEROS[:0]), "images"),
        (images(labels=ZEROS[1:]), "images|labels"),
    ],
    "ClozeBatches": [
        (cloze(batch_size=0), "batch_size|1|0"),
        (cloze(max_shapes=0), "max_shapes|1|0"),
        (lambda: data.plan_cloze_shapes([questions()[0].take(np.arange(0))]), "questions"),
        (cloze(["document"]), "document"),
        *(
            (cloze([name]), f"shapes|{name}|{size}")
            for name, size in (("candidates", 3), ("positions", 4))
        ),
        (cloze(["words"]), "shapes|words"),
    ],
    "SequenceBatches": [
        (sequences(), "batch_size|max_tokens|None"),
        (sequences(batch_size=2, max_tokens=3), "batch_size|max_tokens|2|3"),
        (sequences(batch_size=0), "batch_size|1|0"),
        (sequences(max_tokens=8, bucket_edges=(3,)), "bucket_edges|3|11"),
        (sequences(max_tokens=8, bucket_edges=(12, 12)), "bucket_edges|(12, 12)"),
        (sequences(max_tokens=8, columns={"label": np.zeros(3)}), "label"),
        (sequences(max_tokens=8, lengths={"lengths": "words"}), "lengths|['words']"),
        (lambda: sequences(max_tokens=8)().eval(), "shuffle|False|True"),
    ],
    "LanguageModelBatches": [
        (language(batch_size=0, num_steps=5), "batch_size|1|0"),
        (language(batch_size=2, num_steps=0), "num_steps|1|0"),
        (language(batch_size=3), "2"),
    ],
    "words": [
        (lambda: data.ClosedVocabulary(["the"]).encode(["cat"]), "'cat'"),
        (lambda: data.ClosedVocabulary(["a", "b", "a"]), "'a'"),
        (lambda: data.ClosedVocabulary([]), "words"),
        (lambda: data.random_embeddings(WORDS, 0), "dim|0"),
        (stream(ENDLESS), "toy, train|3|'<eos>'"),
        (stream([]), "toy, train"),
        (stream(ENDLESS, data.ClosedVocabulary(["a"])), "toy, train|'<eos>'"),
    ],
    "names": [
        (load("polarty"), "'polarty'|'polarity'"),
        (load("trec", "dev"), "'dev'|train|test"),
        (load("sst", granularty="fine"), "'granularty'|'granularity'"),
        (load("sst2", granularity="fine"), "granularity|'fine'"),
        (load("polarity", level="phrase"), "'level'"),
        (load("sst1_phrases", level="sentence"), "level|'sentence'"),
        (load("sst1", level="train_phrases"), "'train_phrases'|'train_phrase'"),
        (load("sst1", level="distinct"), "level|'distinct'"),
        (load("sst1_phrase"), "'sst1_phrase'|'sst1_phrases'"),
        (load("trec", level="train_phrase"), "'trec'|'level'"),
        (load("senteval_probing"), "task|'senteval_probing'|'senteval_bigram_shift'"),
        (load("senteval_probing", task="bshift"), "'bshift'|bigram_shift"),
        *(
            (load(name, held_out=0.2), "held_out|None")
            for name in ("sst2", "ptb", "mnist", "digits", "polarity")
        ),
    ],
}


def raw(name, split="train", **options):
    """Reads a set from a folder without its files."""
    return lambda folder: data.load(name, split, manual_dir=folder, **options)


def broken(name, file, content):
    """Reads a set of which a file has other content."""

    def call(folder):
        (folder / "train-labels-idx1-ubyte").write_bytes(b"")
        (folder / file).write_bytes(content)
        data.load(name, "train", manual_dir=folder)

    return call


CUT = gzip.compress(bytes(2000))[:-9]


def vocabulary(text):
    def call(folder):
        (folder / "v.json").write_text(text)
        data.Vocabulary.load(folder / "v.json")

    return call


def vectors(content, name="v.txt", read=None):
    """Reads the vectors of a file for three words, or which words it has."""

    def call(folder):
        (folder / name).write_bytes(content)
        return (read or functools.partial(data.load_embeddings, dim=3))(folder / name, WORDS)

    return call


def headed(text):
    """The two readers of a file that begins with counts."""
    name, content = "v.vec", text.encode()
    return vectors(content, name), vectors(content, name, lambda path, _: words_in(path, 9))


FILES = {
    "damaged": [
        (broken("cnn_cloze", "cnn.tgz", CUT), "cnn.tgz|damaged"),
        (broken("ptb", "simple-examples.tgz", CUT), "simple-examples.tgz|damaged"),
        (broken("mnist", "train-images-idx3-ubyte.gz", CUT), "train-images-idx3-ubyte.gz|damaged"),
        (broken("cbt_ne", "cbtest_NE_train.txt", b"1 x\n2 y\n"), "'cbt_ne'|no usable line|21"),
    ],
    "missing": [
        (
            lambda folder: data.load("trec", "train", manual_dir=folder / "nowhere"),
            "manual_dir|nowhere: there is no such folder",
            MISSING,
        ),
        (raw("ptb"), "ptb.train.txt|simple-examples.tgz", MISSING),
        (raw("trec"), "train_5500.label|manual_dir|cogcomp", MISSING),
        (raw("imdb"), "aclImdb_v1.tar.gz|stanford", MISSING),
        (raw("cbt_cn"), "cbtest_CN_train.txt|thespermwhale", MISSING),
        (raw("wdw"), "wdw/training|who_did_what", MISSING),
        (raw("senteval_probing", task="past_present"), "past_present.txt", MISSING),
        (lambda folder: words_in(folder / "no.txt", 9), "no.txt|no such file of word", MISSING),
        (
            lambda folder: data.load_embeddings(folder / "no.txt", WORDS, dim=100),
            "glove.6B.zip|random_embeddings",
            MISSING,
        ),
        *(
            row
            for name in ("conll_srl", "iwslt14_en_ro", "wmt14_en_de", "ewt_trees")
            for row in (
                # no program can download it
                (
                    lambda folder, name=name: data.load(name, "train", data_dir=folder),
                    "download|manual_dir",
                    MISSING,
                ),
                (raw(name), f"{name}|manual_dir", MISSING),
            )
        ),
    ],
    "Vocabulary": [
        (vocabulary(text), "v.json|vocabulary")
        for text in ("{", "[]", '{"words": ["a"], "lowercase": true}', '{"words": 3}')
    ],
    "vectors": [
        *((vectors(content), "v.txt is empty") for content in (b"", b"\n\n")),
        (vectors(b"the 1 2\n"), "line 1|2|3"),
        (vectors(b"a 1 2 3\nthe 1 2 3 4\n"), "line 2|4|3"),
        (vectors(b"a 1 2 3\nthe 1 2"), "line 2|2|3|truncated"),
        (vectors(b"a 1 2 3\nfilm 1 nan 2\n"), "line 2|'film'|finite"),
        (vectors(b"film 1 1e60 2\n"), "line 1|'film'|finite"),
        (vectors(b"film 1 x 2\n"), "line 1|x"),
        (vectors(b"a 1 2 3\n\xff\xfe 1 2 3\n"), "line 2|UTF-8"),
        (vectors(gzip.compress(b"the 1 2 3\n" * 99)[:-9], "v.gz"), "v.gz|truncated"),
    ],
    "vectors with a header": [
        (call, parts)
        for text, parts in (
            ("3 3\nthe 1 2 3\na 1 2 3\n", "line 1|3|2|truncated"),
            ("1 3\nthe 1 2 3\na 1 2 3\n", "line 1|1|2"),
            ("2 3\nthe 1 2\na 1 2\n", "line 2|2|3"),
            ("2 300\nthe 1 2 3\na 1 2 3\n", "line 2|3|300"),
            ("2 300\nthe 1\na 1\n", "line 2|1|300"),
            ("2 3\n", "line 1|vectors"),
        )
        for call in headed(text)
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@each_row(FILES)
def test_bad_files_are_refused_by_name(call, parts, error, tmp_path):
    refused(lambda: call(tmp_path), parts, error)


def test_sizes_that_a_batch_does_not_have_may_be_too_small():
    """Without characters and lists of positions no batch has room for either."""
    encoded, _ = questions()
    (whole,) = data.plan_cloze_shapes([encoded], max_shapes=1)
    for name in ("positions", "words"):
        small = dataclasses.replace(whole, **{name: getattr(whole, name) - 1})
        data.ClozeBatches(encoded, batch_size=2, shapes=[small])
