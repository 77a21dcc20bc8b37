"""Records of RAU's runs: reused, made again, damaged, and rendered with exact numbers."""

import functools
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.core.command import options_of
from experiments.core.curves import MAX_POINTS, points
from experiments.core.paper import Job
from experiments.rau import figures
from experiments.rau.paper import PAPER
from tests.experiments import _results
from tests.experiments._results import save

rendered = functools.partial(_results.rendered, PAPER)


def config_of(preset, cell, seed, **model):
    return _results.config_of(PAPER, preset, seed, cell=cell, **model)


def make_record(config, correct, **more):
    facts = {"cell": config.model.cell, "parameters": 1234}
    return _results.record_of(PAPER, config, correct, **facts | more)


def test_curves_are_means_over_seeds_and_thinned(tmp_path):
    records = [
        {"curve": [[5, 1.0, 0.2], [10, 0.5, 0.6]]},
        {"curve": [[5, 1.0, 0.4], [10, 0.5, None]]},
        {},
    ]
    found = points(records, "curve", 2)
    assert found == [
        (5.0, pytest.approx(0.3), pytest.approx(0.1 * math.sqrt(2))),
        (10.0, pytest.approx(0.6), 0.0),
    ]
    long = [{"train_curve": [[step, float(step)] for step in range(1, 101)]}]
    thin = points(long, "train_curve", 1)
    assert len(thin) <= MAX_POINTS
    assert thin[0] == (3.0, 2.0, None)  # of one seed
    assert thin[-1] == (100.0, 100.0, None)
    assert points([], "curve", 1) == []


def test_sample_images_are_the_first_of_their_class(np_rng, monkeypatch):
    pytest.importorskip("matplotlib")
    images = np_rng.integers(1, 255, (6, 4, 5))
    monkeypatch.setattr(figures, "PER_CLASS", 3)
    info = SimpleNamespace(class_names=("no", "yes", "never"))
    source = SimpleNamespace(images=images, labels=np.array([1, 0, 1, 1, 0, 1]), info=info)
    axes = figures.draw_images(source, "first").axes
    assert [text.get_text() for one in axes for text in one.texts] == list(info.class_names)
    for row, wanted in zip((axes[:3], axes[3:6], axes[6:]), ([1, 4], [0, 2, 3], []), strict=True):
        drawn = [one.images[0].get_array() for one in row if one.images]
        np.testing.assert_array_equal(np.reshape(drawn, (-1, 4, 5)), images[wanted])


@pytest.mark.parametrize(
    ("what", "data", "variant", "line"),
    [
        (
            "figure5",
            "fashion_mnist",
            "rau_long",
            "validation while training, Fashion-MNIST: [figure5.png]",
        ),
        ("figure6", "ptb_medium", "gru", "while training, PTB medium: [figure6_ptb_medium.png]"),
        (
            "figure6",
            "ptb_small",
            "gru",
            "PTB small (the paper: PTB medium, not run): [figure6.png]",
        ),
        ("figure7", "imdb", "lstm_lr1e-5", "training on IMDB: [figure7.png]"),
        ("figure7", "imdb_100", "lstm_lr1e-5", "IMDB, width 100: [figure7_imdb_100.png]"),
    ],
)
def test_a_figure_is_drawn_from_records_alone(tmp_path, what, data, variant, line):
    pytest.importorskip("matplotlib")
    store = PAPER.store(tmp_path)
    cell = re.match("[a-z]+", variant)[0]
    save(store, data, variant, [make_record(config_of(data, cell, seed), "1") for seed in (0, 1)])
    figures.curves(Job(PAPER, options_of(PAPER)(what=what, data=(data,), results=tmp_path)))
    (file,) = tmp_path.glob("*.png")
    assert file.read_bytes().startswith(b"\x89PNG")
    assert line in rendered(store)
