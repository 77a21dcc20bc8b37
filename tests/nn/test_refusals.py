"""Fields and inputs that a module cannot use are refused by name while it is traced."""

import functools
import itertools

import flax.linen as nn
import jax
import numpy as np
from flax import nnx

from gatedjax import functional as F
from gatedjax import nn as gnn
from gatedjax import nnx as gnnx
from tests.refusals import each_row, refused

NAN = float("nan")
# 3 texts of 5 words of width 6; 2 heads; sources of 4 words
XS, MASK = np.zeros((3, 5, 6), np.float32), np.arange(5) < np.array([5, 3, 0])[:, None]
INTS = np.ones((3, 5, 6), np.int32)
SOURCE_MASK = np.ones((3, 4), bool)
CACHE = F.AttentionCache(*[np.zeros((3, 2, 4, 3), np.float32)] * 2, SOURCE_MASK, np.int32(4))
HEADS, PAIRS = np.ones((3, 2, 5, 4), np.float32), np.ones((3, 2, 5, 5), np.float32)
# what `flax.linen.make_attention_mask` makes: [B, 1, Q, N] of float32
OF_FLAX = np.ones((3, 1, 5, 5), np.float32)
IDS, LENGTHS = np.ones((4, 4), np.int32), np.array([3, 1, 0, 4], np.int32)
CELLS = (gnn.LSTM, gnn.GRU, gnn.RAU)


def made(module, *inputs, **options):
    """Initialises a module for inputs."""
    start = functools.partial(module.init, **options)
    return lambda: jax.eval_shape(start, jax.random.key(0), *inputs)


def cell(kind, features=4, inputs=(XS,), initial=None, **options):
    return made(kind(features, **options), *inputs, initial=initial)


def noisy(ids):
    return made(gnn.GRU(4, recurrent_dropout=0.5), XS, deterministic=False, example_id=ids)


def applied(module, *inputs):
    """Applies a module whose parameters are for other inputs."""
    params = jax.eval_shape(module.init, jax.random.key(0), XS)
    return lambda: jax.eval_shape(module.apply, params, *inputs)


def of_biased(module):
    """Applies a module with the parameters of a GRU with two biases."""
    biased = gnn.GRU(4, reset_after=True)
    params = jax.eval_shape(biased.init, jax.random.key(0), XS)
    return lambda: jax.eval_shape(module.apply, params, XS)


def rounded(module):
    """Applies a module whose parameters are integers."""
    params = jax.eval_shape(module.init, jax.random.key(0), XS)
    params = jax.tree.map(lambda its: jax.ShapeDtypeStruct(its.shape, np.int32), params)
    return lambda: jax.eval_shape(module.apply, params, XS)


def selective(*inputs, given=None, **options):
    module = gnn.SelectiveSelfAttention(**({"num_heads": 2} | options))
    return made(module, *(inputs or (XS, MASK)), **(given or {}))


def decoding(rows=3, **options):
    """Decodes a token with a cache of no selector, of 2 heads and width 6."""
    module = gnn.SelectiveSelfAttention(**({"num_heads": 2} | options))
    cache = gnn.SelectiveSelfAttention(2, selector="none").initial_cache(3, 5, 6)
    variables = jax.eval_shape(module.init, jax.random.key(0), XS)
    run = functools.partial(module.apply, method="decode")
    return lambda: jax.eval_shape(run, variables, cache, XS[:rows, :1])


def caching(*source, features=None):
    """Keeps the keys of a source."""
    module = gnn.SelectiveSelfAttention(2, features)
    variables = jax.eval_shape(module.init, jax.random.key(0), XS)
    run = functools.partial(module.apply, method="source_cache")
    return lambda: jax.eval_shape(run, variables, *source)


def characters(count=5, ids=IDS, lengths=LENGTHS):
    return made(gnn.CharacterEncoder(count), ids, lengths)


def transform(**options):
    return made(gnn.AttentionGatedTransform(**options), XS)


def traced(function, *arrays):
    return lambda: jax.eval_shape(function, *arrays)


TABLE = {
    kind.__name__: [
        (cell(kind, num_layers=2, initial=(None,)), "initial|2|1"),
        (
            applied(kind(4), XS[..., :2]),
            "xs|D = 6|params['layer_0']['forward']['kernel']|2|(3, 5, 2)",
        ),
        (applied(kind(4), XS, MASK[:, :4]), "mask|(3, 5)|(3, 4)"),
        (applied(kind(4), XS, XS[..., 0]), "mask|bool|float32", TypeError),
        (applied(kind(4), XS[0]), "xs|3|(5, 6)"),
    ]
    for kind in CELLS
}
TABLE["GRU"] += [
    (of_biased(gnn.GRU(4)), "params['layer_0']['forward']|recurrent_bias|reset_after=True"),
    (of_biased(gnn.GRU(4, reset_after=True, recurrent_bias=False)), "recurrent_bias=True"),
    *(
        (cell(gnn.GRU, gradient_clip=bound), f"gradient_clip|positive|{bound}")
        for bound in (0.0, -1.0)
    ),
]
TABLE["RAU"] += [
    (cell(gnn.RAU, attn_hidden=3, attention="concat"), "attn_hidden|0|'concat'|3"),
    (cell(gnn.RAU, attention="time"), "attention|'time'|'time_causal'"),
    (cell(gnn.RAU, attention="other"), "attention|'other'"),
]
TABLE |= {
    "integers where numbers are wanted": [
        (made(module, *inputs), f"{argument}|int32", TypeError)
        for module, argument, inputs in (
            (gnn.GRU(4), "xs", (INTS,)),
            (gnn.TokenScore(), "states", (INTS,)),
            (gnn.GatePredictor("fnn", 3), "xs", (INTS, MASK)),
            (gnn.LocalPosition(), "last", (INTS[:, 0], np.ones(3, np.int32))),
            (gnn.GatedAttentionHop(4), "document", (INTS, XS)),
            (gnn.AttentionGatedTransform(2), "words", (INTS,)),
            (gnn.SelectiveSelfAttention(2), "inputs", (INTS,)),
        )
    ]
    + [(rounded(kind(4)), "input|int32", TypeError) for kind in CELLS],
    "natural mistakes": [
        (made(gnn.GRU(4), XS.tolist()), "xs|list", TypeError),
        (made(gnn.GRU(4), None), "xs|NoneType", TypeError),
        (
            made(gnn.AttentionPool(), XS[0, 0]),
            "states|[..., T, D]|(6,)",
        ),
        (made(gnn.LocalPosition(), XS[:, 0], XS[:, 0, 0]), "lengths|float32", TypeError),
        (made(gnn.LocalPosition(), XS[:, 0], LENGTHS[:2]), "lengths|(3,)|(2,)"),
        (made(gnn.LocalPosition(), XS[:, 0], LENGTHS[:3, None]), "lengths|(3,)|(3, 1)"),
        (made(gnn.GatedAttentionHop(4), XS, XS, MASK[:, :4]), "document_mask|(3, 5)|(3, 4)"),
        (made(gnn.GatedAttentionHop(4), XS, XS, MASK, MASK[:, :4]), "query_mask|(3, 4)"),
        (selective(temperature=NAN), "temperature|nan"),
        (selective(given={"temperature": 0.0}), "temperature|0.0"),
        (selective(XS, given={"source": INTS}), "source|int32", TypeError),
        (lambda: gnn.GRUCell(4).initialize_carry((3, 6), 0), "input_shape|tuple|0", TypeError),
        (
            made(gnn.WordEmbedding(2, 2, initial=[[0.0, 1.0]]), IDS),
            "initial|(2, 2)|(1, 2)",
        ),
    ],
    "kinds": [
        (made(gnn.GatePredictor("bad"), XS, MASK), "kind|'lstm'|'bad'"),
        (made(gnn.TokenScore("bad"), XS), "kind|'mlp1'|'bad'"),
    ],
    # it would broadcast, and mix texts
    "masks of another shape": [
        (made(module, XS, np.ones(shape, bool)), f"mask|(3, 5)|{shape}")
        for module, shape in itertools.product(
            (
                gnn.AttentionPool("mlp1"),
                gnn.GatePredictor("fnn", 3),
                gnn.GatePredictor("lstm", 3),
                gnn.GatePredictor("att", 3),
            ),
            [(3, 1, 1, 5), (3, 1, 5), (5,), (3, 4)],
        )
    ],
    "AttentionPool": [
        (made(gnn.AttentionPool("mlp"), XS), "score|'zhou'|'mlp'"),
    ],
    "carries of layers": [
        (
            made(gnn.GRU(4, num_layers=2), XS, initial=np.zeros((3, 4), np.float32)),
            "initial|carry per layer (2)|ndarray|tuple",
        ),
        (made(gnn.GRU(4), XS, initial=(XS[:, 0],)), "initial|(3, 4)|(3, 6)"),
    ],
    "layers": [
        (made(gnn.LSTM(4), XS, gates=XS[..., 0], resets=MASK), "resets|None|gates"),
        (noisy(np.arange(2)), "example_id|(3,)|(2,)"),
        (noisy(XS[:, 0, 0]), "example_id|integers|float32", TypeError),
        *(
            (lambda o=option: gnn.RAU(4, **o).apply({}, XS, method="attention_weights"), parts)
            for option, parts in (
                ({"num_layers": 2}, "num_layers=1|num_layers=2"),
                ({"bidirectional": True}, "bidirectional=False|bidirectional=True"),
            )
        ),
    ],
    "AttentionGatedTransform": [
        (transform(num_layers=2, ablate_above=2), "ablate_above|[0, 1]|2"),
        (transform(num_layers=2, ablate_mode="none"), "ablate_mode|'none'"),
    ],
    "CharacterEncoder": [
        (characters(1), "num_characters|2|1"),
        (characters(ids=IDS * 1.0), "characters|integers|float32", TypeError),
        (characters(lengths=LENGTHS * 1.0), "lengths|integers|float32", TypeError),
        (characters(lengths=LENGTHS[:3]), "lengths|(4,)|(3,)"),
    ],
    "SelectiveSelfAttention": [
        (selective(selector="hard"), "selector|'hard'"),
        (selective(num_heads=4), "num_heads|4"),
        (selective(empty="any"), "empty|'any'"),
        (selective(relative="global"), "relative|'global'"),
        (selective(relative="local", num_heads=1), "num_heads"),
        (selective(relative="learned", max_offset=0), "max_offset|0"),
        (selective(XS[0]), "inputs|(5, 6)"),
        (selective(XS, MASK[0]), "mask|(3, 5)|(5,)"),
        (selective(XS, OF_FLAX > 0), "mask|(3, 5)|(3, 1, 5, 5)|pair_mask"),
        (selective(XS, OF_FLAX[:, 0] > 0), "mask|(3, 5)|(3, 5, 5)|pair_mask"),
        (selective(XS, XS[..., 0]), "mask|bool|float32", TypeError),
        (selective(given={"pair_mask": OF_FLAX[:, 0]}), "pair_mask|bool", TypeError),
        (selective(given={"pair_mask": OF_FLAX[:, 0, :, :4] > 0}), "pair_mask|(3, 1, 5, 4)"),
        (selective(given={"source_mask": MASK}), "source_mask|None|source"),
        (selective(given={"source": XS[:2]}), "source|[3, N, D]|(2, 5, 6)"),
        (selective(causal=True, given={"source": XS}), "source|None|causal=True"),
        (selective(empty="self", given={"source": XS}), "source|None|'self'"),
        (selective(relative="local", given={"source": XS}), "source|relative"),
        (selective(given={"source": CACHE}), "source.selector_key"),
        (
            selective(given={"source": CACHE, "source_mask": MASK}),
            "source_mask|None|AttentionCache",
        ),
        (
            selective(selector="none", features=4, given={"source": CACHE}),
            "source.key|(3, 2, 4, 2)|(3, 2, 4, 3)",
        ),
        (
            selective(selector="none", given={"source": CACHE._replace(value=HEADS)}),
            "source.value|(3, 2, 4, 3)|(3, 2, 5, 4)",
        ),
        (
            selective(given={"source": XS[:, :4], "source_mask": OF_FLAX[..., :4]}),
            "source_mask|(3, 4)|pair_mask",
        ),
    ],
    "decoding": [
        (decoding(), "causal|True|decode"),
        (decoding(causal=True), "cache.selector_key|array"),
        (decoding(num_heads=3, causal=True, selector="none"), "key|shape"),
        (decoding(2, causal=True, selector="none"), "cache|rows|(3, 5)|(2, 1, 6)"),
        (caching(XS), "features|source_cache|None"),
        (caching(XS[0], features=6), "source|[B, N, D]|(5, 6)"),
        (caching(XS, MASK[:, :4], features=6), "source_mask|(3, 5)|(3, 4)"),
        (
            lambda: gnn.SelectiveSelfAttention(2).initial_cache(3, 5),
            "features|initial_cache|None",
        ),
        (lambda: gnn.SelectiveSelfAttention(2).initial_cache(3, 0, 6), "size|1|0"),
    ],
    "SourceToToken": [(made(gnn.SourceToToken(), XS, MASK[:, :4]), "mask|(3, 5)|(3, 4)")],
    "Recurrent": [
        (
            made(gnn.Recurrent(nn.GRUCell(4), recurrent_dropout=0.2), XS),
            "recurrent_dropout|recurrent_dropout_mask|0.2|GRUCell",
        ),
        (
            made(gnn.Recurrent(nn.GRUCell(4), implementation="persistent"), XS),
            "implementation|'scan'|'persistent'",
        ),
        (
            lambda: gnnx.Recurrent(
                functools.partial(nnx.GRUCell, hidden_features=4),
                6,
                recurrent_dropout=0.2,
                rngs=nnx.Rngs(0),
            ),
            "recurrent_dropout|recurrent_dropout_mask|0.2",
        ),
        (made(gnn.Recurrent(lambda carry, x: (carry, x)), XS), "initial|initialize_carry"),
        (made(gnn.Recurrent(nn.GRUCell(4)), XS, gates=XS[..., 0]), "gates|GRUCell|LSTM"),
        (
            lambda: gnnx.Recurrent(
                functools.partial(nnx.GRUCell, hidden_features=4), 6, dropout=0.5, rngs=nnx.Rngs(0)
            )(XS, example_id=np.arange(2)),
            "example_id|(3,)|(2,)",
        ),
    ],
    "streams of NNX": [
        *(
            (lambda k=kind, o=option: k(6, 4, **o, rngs=nnx.Rngs(params=0)), "rngs|dropout|params")
            for kind in (gnnx.LSTM, gnnx.GRU, gnnx.RAU)
            for option in ({"dropout": 0.5, "num_layers": 2}, {"recurrent_dropout": 0.5})
        ),
        *(
            (lambda o=option: gnnx.SelectiveSelfAttention(2, 6, **o), parts)
            for option, parts in (
                ({"rngs": nnx.Rngs(params=0)}, "rngs|gate|params"),
                ({"dropout": 0.5, "rngs": nnx.Rngs(params=0)}, "gate=1, dropout=1"),
                ({"dropout": 0.5, "rngs": nnx.Rngs(params=0, gate=1)}, "dropout=1"),
                # without noise there is no stream for it
                (
                    {"selector": "mean_field", "dropout": 0.5, "rngs": nnx.Rngs(params=0)},
                    "streams params, dropout",
                ),
            )
        ),
        (lambda: gnnx.TokenScore(in_features=6, rngs=nnx.Rngs(dropout=0)), "rngs|params=1|dropout"),
        (lambda: gnnx.LSTMCell(6, 4, rngs=nnx.Rngs()), "rngs|params=1|none"),
    ],
    # where a mask of Flax's attention is given, the message names the argument for pairs
    "functions of pairs": [
        (traced(call, mask), "mask|pair_mask")
        for call in (
            lambda mask: F.selective_attention(HEADS, HEADS, HEADS, PAIRS, mask=mask),
            lambda mask: F.relaxed_selective_attention(HEADS, HEADS, HEADS, -PAIRS, mask=mask),
            lambda mask: F.selection_counts(PAIRS, mask),
            lambda mask: F.selection_entropy(PAIRS, mask),
            lambda mask: F.selection_log_prob(PAIRS, PAIRS, mask),
        )
        for mask in (OF_FLAX, OF_FLAX > 0)
    ],
}


@each_row(TABLE)
def test_bad_input_is_refused_by_name(call, parts, error):
    refused(call, parts, error)
