"""What a lexicon, its heads and pooled vectors refuse, by name."""

import dataclasses

import numpy as np

from gatedjax.lexicon import (
    ClassHead,
    EmptyLexicon,
    GatedPooling,
    LabelHead,
    OrdinalHead,
    RealHead,
    fit_lexicon,
    fit_pooling,
)
from gatedjax.lexicon._linear import fit_linear
from tests.lexicon.test_heads import HEADS, KINDS
from tests.lexicon.test_lexicon import LABELS, TEXTS, lexicons
from tests.refusals import each_row, refused

WEIGHTS = np.ones(len(TEXTS))


def fit(texts=TEXTS, labels=LABELS, num_classes=2, shares=(1.0,), **options):
    return lambda: list(fit_lexicon(texts, labels, num_classes, shares, **options))


def targets(head, *values):
    return lambda: head.check_targets(np.array(*values))


def changed(kind="classes", **changes):
    """Checks a lexicon of which a field is another one."""

    def call():
        head, labels = HEADS[kind]
        (lexicon,) = fit_lexicon(TEXTS, labels, 0, [0.3], head=head)
        dataclasses.replace(lexicon, **changes).check()

    return call


def pool(*shapes, labels=(0, 1)):
    texts = [np.ones(shape) for shape in shapes]
    return lambda: next(fit_pooling(texts, np.array(labels), 2, [1.0]))


def pooled(**changes):
    """Checks pooled vectors of which a field is another one."""
    right = GatedPooling(2, np.ones(3), 0.0, np.ones((3, 1)), np.ones(1), np.full(2, 0.5), 0.5)
    right.check()
    return lambda: dataclasses.replace(right, **changes).check()


TABLE = {
    "fit_lexicon": [
        (fit(sample_weight=np.ones(3)), "sample_weight must have shape"),
        (fit(sample_weight=-WEIGHTS), "finite numbers of at least 0"),
        (fit(sample_weight=0 * WEIGHTS), "some above 0"),
        (fit(labels=LABELS[:-1]), "the same length"),
        (fit(labels=LABELS * 1.0), "integers in"),
        (fit(labels=LABELS + 1), "integers in"),
        (fit(num_classes=1), "num_classes must be at least 2"),
        *((fit(shares=shares), "falling") for shares in ((0.5, 1.0), (), (1.0, 0.0))),
        (fit(texts=[[]] * len(TEXTS)), "at least one word"),
        (fit(pseudo_count=-1.0), "pseudo_count must be a finite number of at least 0"),
        (fit(pseudo_count=float("nan")), "pseudo_count must be a finite number"),
        (fit(shares=(1.0, 0.001)), "share must leave a word to read, got 0.001", EmptyLexicon),
    ],
    "fit_linear": [(lambda: fit_linear(TEXTS, LABELS[:3], ClassHead(2)), "same length")],
    "fit_pooling": [
        (pool((2, 3)), "the same length"),
        (pool((2, 3), (2, 4)), "the same width"),
        (pool((0, 3), (0, 3)), "at least one token"),
    ],
    "arrays": [
        *(
            (changed(**{name: np.zeros((1, 5, 2))}), f"{name} must have shape")
            for name in ("is_read", "counts", "pairs", "scale", "weights", "bias", "prior")
        ),
        (changed(piece_weights=np.zeros((1, 5, 2))), "piece_weights must have shape"),
        *(
            (pooled(**{name: np.zeros((5, 2))}), f"{name} must have shape")
            for name in ("weights", "bias", "prior")
        ),
        *(
            (pooled(**{name: np.full(shape, np.inf)}), f"{name} must be finite")
            for name, shape in (("gate", 3), ("weights", (3, 1)), ("bias", 1), ("cut", ()))
        ),
    ],
    "temperatures": [
        (changed(temperatures=wrong), "temperatures must be 4 positive, finite numbers")
        for wrong in ((1.0, 1.0, 1.0, 0.0), (1.0, 2.0), (1.0, 1.0, 1.0, np.nan))
    ],
    "prior": [
        (changed(kind, prior=wrong), "prior must")
        for kind, size in zip(KINDS, (3, 2, 3, 1), strict=True)
        for wrong in (np.zeros(9), np.full(size, np.nan))
    ],
    "targets": [
        (targets(LabelHead(2), np.zeros((3, 3), bool)), "labels must be a bool array|(n, 2)"),
        (targets(LabelHead(2), np.zeros((3, 2))), "labels must be a bool"),
        (targets(RealHead(0.0, 1.0), [1.0, np.nan]), "targets must be finite"),
        (targets(RealHead(0.0, 1.0), [1, 2]), "targets must be finite numbers"),
        (targets(OrdinalHead(2), [0, 2]), "labels must be integers in [0, 2)"),
    ],
    "heads": [
        (lambda: LabelHead(0), "must be at least"),
        (lambda: OrdinalHead(1), "must be at least"),
        (lambda: ClassHead(True), "must be at least"),
        (lambda: RealHead(0.0, 0.0), "unit positive"),
        (lambda: OrdinalHead(3).check_bias(np.array([1.0, 0.0])), "in order"),
    ],
}


@each_row(TABLE)
def test_what_cannot_be_used_is_refused_by_name(call, parts, error):
    refused(call, parts, error)


def test_too_many_weights_are_refused(monkeypatch):
    monkeypatch.setattr("gatedjax.lexicon._fit._MOST_WEIGHTS", 100)
    refused(lexicons, "at most 100 weights for a lexicon")
