"""Options and batches that a network cannot use are refused by name.

Limits that fields declare, and choices, are tested in tests/test_field_checks.py.
"""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import numpy as np

from gatedjax.gates import Gates
from gatedjax.models import (
    AGTConfig,
    GANetConfig,
    GAReader,
    GAReaderConfig,
    RAUConfig,
    SelectorConfig,
    SSANConfig,
    SSANNLIConfig,
    SSANProbeConfig,
    SSANTaggerConfig,
    SSANTranslatorConfig,
    ga_reader_optimizer,
    translate,
)
from gatedjax.models.transformer.search import beam_search
from tests._drawn import drawn
from tests._grouped import grouped
from tests.models import test_agt, test_ga_net, test_ga_reader, test_rau, test_rau_language
from tests.models._losses import make
from tests.models._passes import RNGS, make_batch
from tests.refusals import each_row, refused

NAN = float("nan")


def ones(*shape, kind=np.int32):
    return np.ones(shape, kind)


def agt(**options):
    return lambda: AGTConfig(**options)


def rau(**options):
    return lambda: grouped(RAUConfig, **options)


def configured(kind, **options):
    return lambda: grouped(kind, **options)


def both(parts, **options):
    """Rows for an encoder with selectors and for the network of pairs."""
    return [(configured(kind, **options), parts) for kind in (SSANConfig, SSANNLIConfig)]


def ga_reader(**options):
    return lambda: grouped(GAReaderConfig, **(test_ga_reader.SMALL | options))


def characters(count, **options):
    config = grouped(GAReaderConfig, **(test_ga_reader.SMALL | options))
    model = GAReader(config, test_ga_reader.VOCABULARY, num_characters=count)
    batch = test_ga_reader.make_batch(np.random.default_rng(0))
    return lambda: jax.eval_shape(model.init, jax.random.key(0), batch)


def epochs(**options):
    return lambda: ga_reader_optimizer(**({"steps_per_epoch": 5, "halve_after": 2} | options))


def search(**options):
    table = np.zeros((3, 2, 4), np.float32)
    good = {"size": 4, "beam_size": 2, "alpha": 0.6, "start": 0, "stop": 1}
    return lambda: beam_search(lambda *_: table, ones(3, 2, 4), ones(3), **(good | options))


def batch(tests, *, task=None, method="evaluate", **changes):
    """Evaluates a small network on a batch with some arrays changed, None taking them away.

    With method="loss" it computes the loss of training.
    """

    def call():
        rng, chosen = np.random.default_rng(0), task or tests.make_task()
        good = tests.make_batch(rng)
        shapes = jax.eval_shape(chosen.init, jax.random.key(0), good)
        bad = {name: value for name, value in (good | changes).items() if value is not None}
        given = carry_of(chosen, good)
        given = (RNGS, *given) if method == "loss" else given
        jax.eval_shape(getattr(chosen, method), shapes, bad, *given)

    return call


def carry_of(task, batch):
    return (task.init_carried(None, batch),) if hasattr(task, "init_carried") else ()


def small(name):
    """A small network and its batch of four rows, as `batch` takes them."""
    return SimpleNamespace(make_task=lambda: make(name).task, make_batch=lambda _: make(name).batch)


SSAN_PROBE = small("ssan_probe")


def ssan(name, **changes):
    """Evaluates a small network on a batch of four rows with some arrays changed."""
    return batch(small(f"ssan_{name}"), **changes)


def narrow_tagger():
    one = make("ssan_tagger")
    task = dataclasses.replace(one.task, width=4)
    jax.eval_shape(task.evaluate, one.shapes, one.batch)


def translation(**options):
    one = make("ssan_translation")
    return lambda: jax.eval_shape(
        lambda params: translate(one.task.model, params, one.batch, **options), one.shapes
    )


def second_vocabulary():
    one = make("ssan_translation")
    model = one.task.model.clone(target_vocab_size=13)
    jax.eval_shape(model.init, jax.random.key(0), one.batch)


def carried(rows=3, **options):
    """Evaluates a language model with the carry of another one."""

    def call():
        task, rng = test_rau_language.make_task(), np.random.default_rng(0)
        good = test_rau_language.make_batch(rng)
        del good["reset"]
        other = test_rau_language.make_task(**options)
        carry = other.init_carried(None, {"tokens": ones(rows, 1)})
        shapes = jax.eval_shape(task.init, jax.random.key(0), good)
        jax.eval_shape(task.evaluate, shapes, good, carry)

    return call


def attention_of_a_gru():
    task = test_rau.make_task(cell="gru")
    given = test_rau.make_batch(np.random.default_rng(0))
    read = functools.partial(task.model.apply, attention=True)
    shapes = jax.eval_shape(task.init, jax.random.key(0), given)
    jax.eval_shape(read, {"params": shapes}, given)


def cloze(place):
    """Reads questions, the first of which has its placeholder beyond its 4 tokens."""

    def call():
        task = test_ga_reader.make_task()
        good = test_ga_reader.make_batch(np.random.default_rng(0))
        bad = good | {"cloze": np.array([place, *good["cloze"][1:]], np.int32)}
        task.model.apply({"params": drawn(task.init, good)}, bad)

    return call


def of_ga_net(function, *, runs=False, **options):
    """Traces function(network, batch) of a small GA-Net for a batch of 3 rows of 8 words.

    With `runs` it is called instead, as values are known outside of programs alone.
    """

    def call():
        task, given = test_ga_net.make_task(**options), make_batch(np.random.default_rng(0))
        run = functools.partial(task.model.apply, batch=given, method=function)
        if runs:
            return run({"params": test_ga_net.draw(task)})
        shapes = jax.eval_shape(task.init, jax.random.key(0), given)
        return jax.eval_shape(lambda params: run({"params": params}), shapes)

    return call


def gates_given(gates, soft=False, **options):
    return of_ga_net(lambda model, batch: model.with_gates(batch, gates, soft=soft), **options)


def gates_attending(logarithms, **options):
    def attend(model, batch):
        gates = Gates(np.ones((3, 8), np.float32), logarithms, False)
        return model.attend(model.encode(batch), gates, batch)

    return of_ga_net(attend, **options)


def compacted(capacity=3, **options):
    return of_ga_net(lambda model, batch: model.compact(batch, capacity=capacity), **options)


TABLE = {
    "gates that are given to GA-Net": [
        *(
            row
            for soft in (False, True)
            for row in (
                (
                    gates_given(-np.ones((1, 3, 8), np.float32), soft, runs=True),
                    "gates|negative|-1.0",
                ),
                (gates_given(np.ones((1, 3, 9), np.float32), soft), "gates|(3, 8)|9"),
                (gates_given(ones(1, 3, 8), soft), "gates|floating point|int32", TypeError),
            )
        ),
        (gates_given(np.ones((1, 3, 8), np.float32), system="soft"), "system|'ganet'|'soft'"),
        (
            gates_attending(np.ones((3, 8), np.float32), runs=True),
            "gates.logarithms|positive|1.0|`Gates.values`",
        ),
        (gates_attending(np.zeros((1, 3, 8), np.float32)), "gates.logarithms|same shape"),
        (gates_attending(0 * ones(3, 8)), "gates.logarithms|floating point|int32", TypeError),
        (compacted(system="soft"), "system|'ganet'|'soft'"),
        (
            of_ga_net(lambda model, batch: model.gate_modes(batch), system="soft"),
            "system|'ganet'|'soft'",
        ),
        (compacted(), "gates_on|'input'|compact"),
        (
            compacted(test_gate="multi_sample", gates_on="input"),
            "test_gate|single draw|'multi_sample'",
        ),
        (compacted(0, gates_on="input"), "capacity|positive|0"),
    ],
    "labels and weights": [
        *(
            (batch(tests, method=method, **{missing: None}), missing)
            for tests in (test_agt, test_ga_net, test_ga_reader, SSAN_PROBE)
            for method, missing in (
                *(("loss", "label"), ("loss", "weight"), ("evaluate", "label")),
                *(("evaluate", "weight"), ("evaluate", "example_id")),
            )
        ),
        (batch(test_agt, label=ones(3, kind=np.float32)), "label|integers|float32", TypeError),
        (batch(test_agt, label=ones(3, 3)), "label|[B]|(3, 3)"),
        (batch(test_agt, weight=ones(3, 1)), "weight|[B]|(3, 1)"),
    ],
    "AGTConfig": [
        (agt(dropout_sites=("word",)), "dropout_sites|'words'|'word'"),
        (agt(ablate_above=15), "ablate_above|14|15"),
        (agt(ablate_above=-1), "ablate_above|-1"),
        (agt(ablate_mode="zero"), "ablate_mode|'highway'|ablate_above"),
        (agt(system="highway", ablate_above=1), "ablate_above|None|'highway'"),
        (agt(system="average", attend_raw=True), "attend_raw|False|'average'"),
        (
            agt(system="highway", share_attention_matrix=True),
            "share_attention_matrix|False|'highway'",
        ),
    ],
    "AGT": [
        (batch(test_agt, tokens=None), "tokens"),
        (batch(test_agt, lengths=None), "lengths"),
        (batch(test_agt, tokens=ones(3)), "tokens [B, N]|(3,)"),
        (batch(test_agt, lengths=ones(2)), "lengths [B]|(3, 8)|(2,)"),
        (batch(test_ga_net, lengths=ones(3, 1)), "lengths [B]|(3, 1)"),
    ],
    "RAUConfig": [
        (rau(forget_bias=1.0), "forget_bias|0|'rau'"),
        (rau(cell="lstm", gate_bias=1.0), "gate_bias|0|'lstm'"),
        (rau(cell="gru", attention="concat"), "attention|'feature_proj'|'gru'"),
        (rau(cell="lstm", attn_hidden=3), "attn_hidden|0|'lstm'"),
        (rau(cell="gru", rescale=True), "rescale|False|'gru'"),
        *(
            (rau(attn_hidden=2, attention=form), f"attn_hidden|0|{form!r}|2")
            for form in ("concat", "matrix")
        ),
        (rau(rescale=True, attention="sigmoid"), "rescale|False|'sigmoid'"),
        (rau(reset_after=True, cell="lstm"), "reset_after|False|'lstm'"),
    ],
    "RAUClassifier": [
        (attention_of_a_gru, "attention|'gru'"),
        (batch(test_rau, rows=None), "rows"),
        (batch(test_rau, lengths=None), "lengths"),
        (batch(test_rau, rows=ones(3, 8)), "rows [B, T, D]|(3, 8)"),
        (batch(test_rau, lengths=ones(2)), "lengths [B]|(3, 8, 4)|(2,)"),
        (
            batch(test_rau, rows=ones(3, 8, 5, kind=np.float32)),
            "xs|D = 4|params['recurrent']['layer_0']['forward']['kernel']|5",
        ),
    ],
    "RAULanguageModel": [
        (batch(test_rau_language, tokens=None), "tokens"),
        (batch(test_rau_language, tokens=None, lengths=None), "lengths, tokens"),
        (batch(test_rau_language, targets=None), "targets"),
        (batch(test_rau_language, method="loss", token_weight=None), "token_weight"),
        (batch(test_rau_language, example_id=None), "example_id"),
        (batch(test_rau_language, tokens=ones(3, 5, 1)), "[B, T]|(3, 5, 1)"),
        (batch(test_rau_language, tokens=ones(3, 5, kind=float)), "tokens|integers|float32"),
        (batch(test_rau_language, lengths=ones(2)), "lengths [B]|(3, 5)|(2,)"),
        (batch(test_rau_language, targets=ones(3, 4)), "targets [B, T]|(3, 4)"),
        (batch(test_rau_language, targets=ones(3, 5, kind=float)), "targets|integers", TypeError),
        (batch(test_rau_language, reset=ones(3, 1, kind=bool)), "reset|(3,)|(3, 1)"),
        (batch(test_rau_language, reset=ones(3)), "reset|bool|int32", TypeError),
        (carried(cell="lstm"), "initial|array|LSTMState", TypeError),
        (carried(hidden=5), "initial|(3, 4)|(3, 5)"),
        (carried(num_layers=1), "initial|2|1"),
        (carried(rows=2), "initial|(3, 4)|(2, 4)"),
    ],
    "GAReaderConfig": [
        (ga_reader(char_dim=2, char_hidden=0), "char_hidden|1|0"),
        (ga_reader(gating="none", token_attention=False), "token_attention|True"),
        (characters(5, char_dim=0), "num_characters|0|5"),
        (characters(0, char_dim=2), "num_characters|0"),
        (epochs(steps_per_epoch=0), "steps_per_epoch|1|0"),
        (epochs(halve_after=0), "halve_after|1|0"),
    ],
    "GAReader": [
        (batch(test_ga_reader, **changes), *row)
        for changes, *row in (
            ({"document": None}, "document"),
            ({"occurrence": None}, "candidate_positions"),
            ({"cloze": ones(3, kind=float)}, "cloze|integers|float32", TypeError),
            ({"cloze": ones(3, 1)}, "cloze|1"),
            ({"cloze": ones(2)}, "cloze [B]|3|document|(2,)"),
            ({"query": ones(2, 5)}, "query|(2, 5)"),
            ({"query_lengths": ones(4)}, "query_lengths|(4,)"),
            ({"occurrence": ones(3, 6, 3, kind=bool)}, "occurrence|(3, 6, 3)"),
            ({"occurrence": ones(3, 7, 3)}, "occurrence|bool", TypeError),
            ({"candidate_mask": ones(3, 3)}, "candidate_mask|bool", TypeError),
            ({"candidate_mask": ones(3, 2, kind=bool)}, "occurrence"),
        )
    ],
    "GAReader with characters": [
        (batch(test_ga_reader, task=test_ga_reader.make_task(char_dim=2), **changes), *row)
        for changes, *row in (
            ({"query_words": None}, "query_words"),
            ({"document_words": ones(3, 6)}, "document_words|(3, 6)"),
            ({"word_lengths": ones(3, 8)}, "word_lengths|(3, 8)"),
        )
    ],
    "GANetConfig": [
        (configured(GANetConfig, **options), parts)
        for options, parts in (
            ({"estimator": "disarm", "system": "soft"}, "estimator|None|system='soft'"),
            ({"estimator": "rebar", "gates_on": "input"}, "gates_on|'attention'|'rebar'"),
            ({"density": 0.5, "system": "soft"}, "density|None|system='soft'|0.5|no gates"),
            ({"gates_on": "input", "system": "soft"}, "gates_on|'attention'|system='soft'"),
        )
    ],
    "selectors": [
        *both("estimator|None|a layer|'disarm'", estimator="disarm", select_layers=(0,)),
        *both("estimator|'rebar'|draws noise anew|'leave_one_out'", estimator="rebar"),
        *both("estimator|'enumerate'|every subset of the pairs", estimator="enumerate"),
        *both("estimator|once for every pair", estimator="local_expectation"),
        *both("density|None|a layer|0.2", density=0.2, select_layers=()),
        *both("selected_weight|0|density=0.2|0.1", density=0.2, selected_weight=0.1),
        *(
            (
                configured(SSANConfig, estimator=name, select_layers=(1, 2)),
                f"select_layers|a single layer|'{name}'|(1, 2)|'leave_one_out'",
            )
            for name in ("arm", "disarm")
        ),
    ],
    "a selector that is not trained": [
        (lambda given=given: SelectorConfig(freeze_selector=True, **given), parts)
        for given, parts in (
            ({"select_layers": (0,)}, "freeze_selector|False|a layer|True"),
            ({"estimator": "reinmax"}, "estimator|None|freeze_selector=True|'reinmax'"),
            ({"density": 0.5}, "density|None|0.5"),
            ({"selected_weight": 0.1}, "selected_weight|0.0|0.1"),
            ({"entropy_weight": 0.1}, "entropy_weight|0.0|0.1"),
            ({"final_temperature": 0.1}, "final_temperature|None|0.1"),
        )
    ],
    "SSANProbeConfig": [
        (configured(SSANProbeConfig, **options), parts)
        for options, parts in (
            ({"select_layers": (7,)}, "select_layers|[1, 6]|(7,)"),
            ({"select_layers": (0, 1)}, "select_layers|different layers|(0, 1)"),
            ({"select_layers": (1, 1)}, "select_layers|different layers|(1, 1)"),
            ({"num_heads": 3}, "num_heads|hidden=128|3"),
            ({"relative": "local", "num_heads": 1}, "num_heads|1"),
        )
    ],
    "SSANNLIConfig": [
        (configured(SSANNLIConfig, **options), parts)
        for options, parts in (
            ({"select_layers": (2,)}, "select_layers|1|0|(2,)"),
            ({"num_heads": 7}, "num_heads|hidden=300|7"),
            ({"num_heads": 2, "t2t": "multi_dim"}, "num_heads|1|t2t='multi_dim'|2"),
            ({"exclude_self": True}, "exclude_self|False|t2t='dot'|True"),
        )
    ],
    "other configurations of SSAN": [
        (
            configured(SSANTaggerConfig, hidden=12, embedding_dim=8, num_heads=2),
            "hidden|embedding_dim=8|12",
        ),
        (
            configured(SSANTaggerConfig, positions="learned"),
            "positions|'sinusoidal'|'none'|'learned'",
        ),
        (configured(SSANTranslatorConfig, select_layers=(7,)), "select_layers|[1, 6]|(7,)"),
    ],
    "a cloze outside of its query": [(cloze(place), f"{place}|4|0") for place in (-1, 4, 9)],
    "networks of SSAN": [
        (ssan("probe", lengths=None), "lengths"),
        (ssan("reordering", insert=None), "insert"),
        (ssan("tagger", is_predicate=None), "is_predicate"),
        (ssan("tagger", labels=None), "labels"),
        (ssan("tagger", is_predicate=ones(4, 2)), "tokens|is_predicate [B, N]|(4, 2)"),
        (narrow_tagger, "width|at least 5|4"),
        (ssan("nli", hypothesis=None), "hypothesis"),
        (ssan("translation", targets=None, target_lengths=None), "target_lengths, targets"),
        (
            ssan("translation", target_lengths=ones(3)),
            "target_lengths [B]|4|(3,)",
        ),
        (ssan("translation", tokens=ones(1, 5), lengths=ones(1)), "targets [B, T]|(1, 5)|(4, 5)"),
        (second_vocabulary, "target_vocab_size|12|share_embeddings=True|13"),
        (translation(beam_size=0), "beam_size|1|0"),
        (translation(extra=0), "extra|1|0"),
        (translation(length_penalty=-0.1), "length_penalty|-0.1"),
    ],
    "beam_search": [
        (search(beam_size=0), "beam_size|1|0"),
        (search(alpha=-1.0), "length_penalty|0|-1.0"),
        (search(alpha=NAN), "length_penalty|0|nan"),
        (search(size=0), "size|1|0"),
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)
