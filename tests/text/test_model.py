"""A trained model: what it says of texts is what the network says of each alone; its folder."""

import dataclasses
import hashlib
import itertools
import json
import re
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from gatedjax.__main__ import main
from gatedjax.lexicon._lexicon import NOTHING_KNOWN
from gatedjax.models import GANet
from gatedjax.text._options import TextOptions
from gatedjax.text.answers._prediction import COLUMNS, Failure
from gatedjax.text.fit._fit import train_any
from gatedjax.text.models import _base
from gatedjax.text.models._base import CHUNK
from gatedjax.text.models._buckets import CELLS, FINE, sizes_of, width_of
from gatedjax.text.models._entries import PAIR, TAGS, TEXT, held_at, likeliest
from gatedjax.text.models._network import TrainedModel
from gatedjax.text.sources._open import open_table
from tests._programs import Plugin
from tests.explore._models import model as draw_model
from tests.explore._models import pair as draw_pair
from tests.text._own import PAIRS, TEXTS, options
from tests.tolerances import F32


@pytest.fixture(scope="module")
def model():
    """A GA-Net that nobody trained; the commands train one."""
    return dataclasses.replace(draw_model(max_len=40), windows=True, prior=(0.25, 0.75))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    return model.save(tmp_path_factory.mktemp("saved") / "model", overwrite=False)


def softmax(logits):
    odds = np.exp(np.asarray(logits, np.float64))
    return odds / odds.sum(axis=-1, keepdims=True)


def drawn(count, longest=50, seed=0):
    """Texts of known and unknown words."""
    rng = np.random.default_rng(seed)
    words = ["dull", "slow", "bright", "warm", "film", "old", "unknown"]
    return [(" ".join(rng.choice(words, rng.integers(1, longest))),) for _ in range(count)]


@pytest.fixture(scope="module")
def alone(model):
    """The pure call of the module on one text without padding: a few lengths only."""
    call = jax.jit(lambda params, batch: model.module.apply({"params": params}, batch))

    def run(text):
        ids = model.ids(model.all_tokens([text])[0])
        batch = {"tokens": ids[None], "lengths": np.array([len(ids)], np.int32)}
        return jax.tree.map(np.asarray, call(model.params, batch))

    return run


@pytest.mark.slow
def test_every_text_is_read_as_if_it_were_alone(model, alone):
    texts = [text for text in drawn(300) if len(text[0].split()) in (1, 7, 9)] * 3
    assert len(texts) > 30
    for (text,), one, said in zip(texts, model.read(texts), model.predict(texts), strict=True):
        output = alone(text)
        probabilities = softmax(output.logits[0])
        np.testing.assert_allclose(one.probabilities, probabilities, **F32)
        np.testing.assert_allclose(one.attention, output.attention[0], **F32)
        read = output.gates[0] > 0
        np.testing.assert_array_equal(one.masks[0], read)
        assert said.read == [w for w, k in zip(text.split(), read, strict=True) if k]
        assert said.label == model.classes[int(np.argmax(probabilities))]
        assert one.share == pytest.approx(read.mean())
        np.testing.assert_allclose(one.gates, 1 / (1 + np.exp(-output.gate_logits[0])), **F32)


@pytest.mark.slow
def test_order_is_kept_across_chunks_and_failures(model, monkeypatch):
    texts = [*drawn(9), ("",), *drawn(4, seed=2), (" \t ",), ("\x00\x1b\x9b",), (3,), "a"]
    monkeypatch.setattr(_base, "CHUNK", 4)
    found = list(model.read(texts))
    assert len(found) == len(texts)
    errors = [one.error if isinstance(one, Failure) else None for one in found]
    assert errors[:9] == [None] * 9
    assert errors[9:16] == [None] * 7
    assert [one.note for one in found[9:16]] == [NOTHING_KNOWN, *[""] * 4, *[NOTHING_KNOWN] * 2]
    assert errors[16] == "a text must be a str, got 3"
    assert errors[17].startswith("an example must be a tuple of 1 text, got ")
    for (text, *_), one in zip(texts, found, strict=True):
        if not isinstance(one, Failure):
            assert one.tokens == (() if one.note else tuple(text.split()),)
    whole = list(model.read(texts))
    for one, other in zip(found, whole, strict=True):
        if not isinstance(one, Failure):
            np.testing.assert_allclose(one.probabilities, other.probabilities, **F32)


def test_a_text_that_fails_says_which(model):
    with pytest.raises(ValueError, match="text 1: a text must be a str, got 3"):
        model.probabilities([("a film",), (3,)])
    assert model.probabilities([]).shape == (0, 2)
    assert list(model.predict(iter(()))) == []


def test_the_first_prediction_is_there_before_the_last_text_is_read(model):
    def texts():
        yield from itertools.repeat(("a dull film",), CHUNK)
        pytest.fail("a chunk of texts must suffice")

    assert next(model.predict(texts())).label in model.classes


@pytest.mark.parametrize("longest", [1, 5, 8, 40, 400, 6000])
def test_the_shapes_of_batches_are_few(longest):
    shapes = set()
    for length in range(longest + 1):
        edge = width_of(length, longest)
        assert length <= edge <= max(longest, FINE[0])
        rows = sizes_of(edge)[-1]
        assert rows * edge <= max(CELLS, 8 * edge)
        shapes |= {(size, edge) for size in sizes_of(edge)}
    assert len(shapes) <= 3 * (len(FINE) + 5)


def test_batches_hold_every_text_once_in_those_shapes(model):
    tokens = [(model.all_tokens(text)[0][:40],) for text in drawn(700, longest=70)]
    seen, shapes = [], set()
    for numbers, batch in model.batches(tokens):
        seen += numbers
        shapes.add(batch["tokens"].shape)
        for row, number in enumerate(numbers):
            ids = model.ids(tokens[number][0])
            assert batch["lengths"][row] == len(ids)
            np.testing.assert_array_equal(batch["tokens"][row, : len(ids)], ids)
            assert not batch["tokens"][row, len(ids) :].any()
    assert sorted(seen) == list(range(700))
    edges = {width_of(n, 40) for n in range(1, 41)}
    assert shapes <= {(size, edge) for edge in edges for size in sizes_of(edge)}


@pytest.mark.slow
def test_gates_that_are_given_are_those_of_single_calls(model):
    tokens = ("dull", "old", "film")
    gates = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]], np.float32)
    found = model.with_gates(tokens, gates)
    batch = model.batch([(tokens,)], 8)
    call = jax.jit(
        lambda g: model.module.apply({"params": model.params}, batch, g, method=GANet.with_gates)
    )
    for row, pattern in zip(found, gates, strict=True):
        padded = np.zeros((4, 1, 8), np.float32)
        padded[2, 0, :3] = pattern
        np.testing.assert_allclose(row, softmax(call(padded).logits)[2, 0], **F32)
    # the gates of its own prediction give its own probabilities
    (one,) = model.read([(" ".join(tokens),)])
    own = model.with_gates(tokens, one.masks[0][None].astype(np.float32))
    np.testing.assert_allclose(own[0], one.probabilities, **F32)


def test_a_folder_gives_back_the_same_bits(model, folder):
    again = TrainedModel.load(folder, ("text", "pair"))
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    for name in ("kind", "network", "config", "classes", "max_len", "prior"):
        assert getattr(again, name) == getattr(model, name)
    assert again.vocabulary.words == model.vocabulary.words
    assert again.report == json.loads(json.dumps(model.report))
    texts = drawn(20, longest=8)
    np.testing.assert_array_equal(again.probabilities(texts), model.probabilities(texts))
    names = {"model.safetensors", "vocabulary.json", "report.json", "config.json", "README.md",
             "SHA256SUMS"}  # fmt: skip
    assert {path.name for path in folder.iterdir()} == names


@pytest.mark.parametrize("sign", [np.ones_like, np.sign], ids=["probability", "gates"])
def test_parameters_whose_outputs_overflow_are_refused_by_name(sign, model, tmp_path, capsys):
    params = jax.tree.map(lambda x: np.float32(3e38) * sign(x), model.params)
    broken = dataclasses.replace(model, params=params)
    message = r"must be finite, got NaN or infinity .* '[\w.]+' has the largest number, 3e\+38"
    with pytest.raises(ValueError, match=message):
        list(broken.predict([("a dull film",)]))
    folder = broken.save(tmp_path / "model", overwrite=False)
    with pytest.raises(SystemExit):
        main(["predict", str(folder), "a dull film"])
    output = capsys.readouterr()
    assert output.out == ""
    assert re.search(message, output.err.replace("\n", " "))


def test_a_model_that_is_opened_again_compiles_nothing(model, folder):
    texts, counts = drawn(3, longest=8), Plugin.running.counts
    before = []
    for one in (model, TrainedModel.load(folder, ("text",))):
        one.probabilities(texts)
        one.with_gates(("dull", "film"), np.ones((1, 2), np.float32))
        before.append(counts.total())
    assert before[0] == before[1]


def rewritten(folder, name, change):
    """Changes a JSON file, and its digest with it: a folder that is whole, but another's."""
    value = json.loads((folder / name).read_text())
    change(value)
    text = json.dumps(value)
    (folder / name).write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    sums = (folder / "SHA256SUMS").read_text()
    sums = re.sub(rf"^[0-9a-f]+  {re.escape(name)}$", f"{digest}  {name}", sums, flags=re.MULTILINE)
    (folder / "SHA256SUMS").write_text(sums)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "vocabulary.json", "report.json", "config.json"]
)
def test_a_damaged_file_is_refused(name, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[-2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^\S+{name} is damaged"):
        TrainedModel.load(copy, ("text",))
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        TrainedModel.load(copy, ("text",))


UNREADABLE, OTHER = "must be a model that this version can read", "must have the parameters of the"
OTHER_CONFIGS = [
    (lambda c: c["gatedjax"].update(format=99), "newer gatedjax that wrote it"),
    (lambda c: c["gatedjax"].update(kind="cloze"), "answer"),
    (lambda c: c.pop("gatedjax"), "must name the kind"),
    (lambda c: c.update(network="other"), UNREADABLE),
    (lambda c: c.update(model=3), UNREADABLE),
    (lambda c: c["model"].update(novel=5), UNREADABLE),
    (lambda c: c["model"].update(hidden=5), OTHER),
    (lambda c: c.update(classes=["bad", "good", "x"], prior=[0.5, 0.5, 0]), OTHER),
    *((lambda c, value=value: c.update(classes=value), UNREADABLE)
      for value in (["bad"], 3, ["a", "a"], [None, "a"])),
    *((lambda c, value=value: c.update(prior=value), "prior must be 2 numbers in ")
      for value in ([0.5, 0.25, 0.25], [1.5, -0.5])),
    *((lambda c, value=value: c.update(max_len=value), UNREADABLE) for value in (0, 10**9)),
]  # fmt: skip
OTHER_WORDS = [
    (lambda v: v["words"].append("more"), OTHER),
    (lambda v: v.update(words=3), UNREADABLE),
    (lambda v: v["words"].__setitem__(4, 3), UNREADABLE),
]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        *(("config.json", *row) for row in OTHER_CONFIGS),
        *(("vocabulary.json", *row) for row in OTHER_WORDS),
    ],
)
def test_another_folder_is_refused_in_one_line(name, change, message, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    rewritten(copy, name, change)
    with pytest.raises(ValueError, match=message) as refused:
        TrainedModel.load(copy, ("text", "pair"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["text", "pair"])
def test_columns_must_be_as_many_as_the_model_reads(kind, tmp_path):
    rows, columns = (PAIRS, COLUMNS["pair"]) if kind == "text" else (TEXTS, COLUMNS["text"])
    chosen = TextOptions(**options("ssan" if kind == "pair" else "ganet", kind=kind))
    with pytest.raises(ValueError, match=r"columns.inputs must name"):
        train_any(kind, open_table(rows, columns), chosen, tmp_path)


# GA-Net, GRU, pairs and tags are trained by other tests.
@pytest.mark.parametrize("name", ["agt", "ssan", "soft", "local", "bilstm", "rau", "lstm", "san"])
def test_other_networks_have_a_loss_and_predict(name):
    kind = "pair" if name == "san" else "text"
    model = draw_model(name) if kind == "text" else draw_pair(name)
    check_network(model, [("a dull film", "a film")[: len(COLUMNS[kind].inputs)]])
    tokens = [model.all_tokens(("a dull film", "warm")[: len(COLUMNS[kind].inputs)])]
    batch = {**model.batch(tokens, 8), "label": np.array([1]), "weight": np.ones(1, np.float32)}
    batch |= {"example_id": np.array([0])}
    task = model.entry.task(model.module)
    rngs = {"dropout": jax.random.key(1), "gate": jax.random.key(2)}
    shapes = jax.eval_shape(lambda params: task.loss(params, batch, rngs), model.params)
    assert "loss" in shapes
    metrics, _ = jax.eval_shape(lambda params: task.evaluate(params, batch), model.params)
    assert "accuracy" in metrics


@pytest.mark.parametrize("share", [0.05, 0.2, 0.75])
def test_the_bias_of_gates_is_moved_to_a_density(share):
    rng = np.random.default_rng(0)
    logits = rng.normal(2, 3, 400).astype(np.float32)
    params = {"auxiliary": {"gate": {"bias": np.array([0.5], np.float32), "kernel": 1}}, "w": 2}
    moved = held_at(params, 1 / (1 + np.exp(-logits)), share)
    shift = moved["auxiliary"]["gate"]["bias"] - params["auxiliary"]["gate"]["bias"]
    assert np.mean(logits + shift > 0) == pytest.approx(share, abs=1 / 400)
    assert (moved["w"], moved["auxiliary"]["gate"]["kernel"]) == (2, 1)
    assert params["auxiliary"]["gate"]["bias"] == 0.5  # left as they were
    # certain gates are no infinite logits
    sure = held_at(params, np.array([0, 1, 1, 1], np.float32), share)
    assert np.isfinite(sure["auxiliary"]["gate"]["bias"]).all()


@pytest.mark.parametrize(("asked", "share"), [(0.5, 0.7), (0.3, 0.2), (0.6, 0.7), (0.01, 0.2)])
def test_words_with_one_gate_are_open_or_closed_together(asked, share):
    probabilities = np.float32([0.1] * 3 + [0.5] * 5 + [0.9] * 2)
    params = {"auxiliary": {"gate": {"bias": np.zeros(1, np.float32)}}}
    bias = held_at(params, probabilities, asked)["auxiliary"]["gate"]["bias"]
    logits = np.log(probabilities / (1 - probabilities))
    assert np.mean(logits + bias > 0) == pytest.approx(share)
    # in training's evaluation as in the model that is read, whatever padding has
    rows = np.stack([logits, np.full(10, 9, np.float32)])
    mask = np.array([[True], [False]]) & (rows == rows)
    opened = jax.jit(likeliest)(rows, mask, np.float32(asked))
    np.testing.assert_array_equal(opened, mask & (rows + bias > 0))


def check_network(model, texts):
    found = list(model.predict(texts))
    for texts_of_one, one in zip(texts, found, strict=True):
        assert one.label in model.classes
        assert 1 / len(model.classes) <= one.probability <= 1
        assert 0 <= one.share <= 1
        read = one.read if model.kind == "pair" else [one.read]
        for words, text in zip(read, texts_of_one, strict=True):
            assert set(words) <= set(text.split())
    (first,) = model.read(texts[:1])
    assert first.probabilities.sum() == pytest.approx(1, abs=1e-5)
    if first.attention is not None:
        # the window of local attention takes from the weights, as in the paper
        least = 0 if model.network == "local" else 1
        assert least - 1e-4 <= first.attention.sum() <= 1 + 1e-4


def test_a_selection_is_that_of_all_layers_heads_and_real_words():
    rng, lengths = np.random.default_rng(0), np.array([4, 2])
    gates = rng.integers(0, 2, (2, 2, 3, 4, 4)).astype(np.float32)  # layers, texts, heads, T, T
    gates[:, 1, :, 0], gates[:, 1, :, 1] = 1, 0  # half of its words select each word of a text
    weights = rng.random(gates.shape).astype(np.float32)
    layers = [SimpleNamespace(gates=g, weights=w) for g, w in zip(gates, weights, strict=True)]
    batch = {"tokens": np.zeros((2, 4), int), "lengths": lengths}
    found = TEXT["ssan"].summarize(SimpleNamespace(selections=layers), batch)
    for row, n in enumerate(lengths):
        share = gates[:, row, :, :n].mean((0, 1, 2))
        np.testing.assert_array_equal(found["read"][0][row], (share > 0.5) & (np.arange(4) < n))
        assert found["share"][row] == pytest.approx(share[:n].mean())
        received = weights[:, row, :, :n].sum((0, 1, 2))
        np.testing.assert_allclose(found["attention"][row], received / received.sum(), rtol=1e-5)
    output = SimpleNamespace(attention=weights[0, :, 0])
    attention = TEXT["agt"].summarize(output, batch)["attention"]
    np.testing.assert_allclose(attention, output.attention.mean(1), rtol=1e-6)
    batch |= {"hypothesis": batch["tokens"], "hypothesis_lengths": lengths[::-1]}
    pair = SimpleNamespace(premise=layers[0], hypothesis=layers[1])
    shares = [gates[0, 0, :, :4, :4].mean(), gates[1, 0, :, :2, :2].mean()]
    share = PAIR["ssan"].summarize(pair, batch)["share"][0]
    assert share == pytest.approx(np.mean(shares))


@pytest.mark.slow
def test_no_selector_of_own_text_has_a_gradient_without_a_bound():
    configs = [network.config for networks in (TEXT, PAIR, TAGS) for network in networks.values()]
    caps = [
        config.gates.cap
        for config in configs
        if hasattr(config, "gates") and hasattr(config.gates, "cap")
    ]
    assert caps == [0] * 5  # ssan and san of pairs and tags, ssan of texts
