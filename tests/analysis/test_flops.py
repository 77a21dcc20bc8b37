"""Operation counts against sums over loops of multiplications and additions."""

import numpy as np
import pytest

from gatedjax import analysis


def count_loop(attended, width):
    """Counts what attention does: w . tanh(h), softmax, weighted sum."""
    operations = 0
    for _ in range(attended):
        for _ in range(width):
            operations += 2  # multiply and add of the score
            operations += 2  # multiply and add of the weighted sum
        operations += 3  # exp, sum, divide
    return operations


@pytest.mark.parametrize(("attended", "width"), [(0, 5), (1, 1), (7, 5), (20, 100)])
def test_attention_flops_equal_the_count(attended, width):
    assert analysis.attention_flops(attended, width) == count_loop(attended, width)


def test_about_400_operations_per_token_as_in_the_paper():
    assert analysis.attention_flops(1, 100) == 403
    assert analysis.attention_flops(1, 200, count="macs") == 400


def test_options_add_what_they_name():
    assert analysis.attention_flops(3, 10, include_tanh=True) == 3 * (43 + 10)
    assert analysis.attention_flops(3, 10, count="macs", include_tanh=True) == 3 * (20 + 10)
    assert analysis.attention_flops(3, 10, score="mlp1") == 3 * (43 + 200)
    assert analysis.attention_flops(3, 10, score="mlp1", count="macs") == 3 * (20 + 100)


def test_totals_are_beyond_32_bits_and_are_python_integers():
    counts = np.full(25_000, 400, np.int32)
    got = analysis.flops_report(counts, counts, 200).soft
    assert got == 25_000 * 400 * 803
    assert got > 2**32
    assert type(got) is int
    assert type(analysis.attention_flops(np.int32(2**30), np.int32(200))) is int
    assert analysis.attention_flops(np.int32(2**30), np.int32(200)) == 2**30 * 803


def test_auxiliary_networks_by_hand():
    common = {"tokens": 3, "input_dim": 5, "hidden": 2}
    lstm = analysis.auxiliary_flops("lstm", **common)
    # per direction and step: 4 gates of H rows over E + H inputs and a bias, two operations each
    assert lstm == 2 * 3 * (4 * 2) * (5 + 2 + 1) * 2 + 3 * 2 * (2 * 2)
    assert analysis.auxiliary_flops("lstm", tokens=0, input_dim=5, hidden=2) == 0
    assert analysis.auxiliary_flops("fnn", **common) == 3 * (2 * 5 * 2 + 2 * 2)
    projections, pairs, readout = 3 * 3 * 2 * 5 * 2, 9 * (2 * 2 + 3 + 2 * 2), 3 * 2 * 2
    assert analysis.auxiliary_flops("att", **common) == projections + pairs + readout


def test_attention_network_needs_the_squared_lengths():
    common = {"tokens": 10, "input_dim": 5, "hidden": 2, "examples": 2}
    equal = analysis.auxiliary_flops("att", **common)
    assert equal == analysis.auxiliary_flops("att", **common, squared_tokens=50)
    # 3 tokens of two texts are 1 and 2, with squares of 1 and 4
    rounded = analysis.auxiliary_flops("att", **common | {"tokens": 3})
    assert rounded == analysis.auxiliary_flops("att", **common | {"tokens": 3}, squared_tokens=5)
    uneven = analysis.auxiliary_flops("att", **common, squared_tokens=82)
    assert uneven - equal == 32 * (4 * 2 + 3)
    each = [analysis.auxiliary_flops("att", tokens=n, input_dim=5, hidden=2) for n in (1, 9)]
    assert uneven == sum(each)


@pytest.mark.parametrize("kind", ["lstm", "fnn", "att"])
def test_report_sums_its_sentences(kind):
    report = analysis.flops_report(
        [4, 0, 9], [1, 0, 3], 6, auxiliary=kind, input_dim=5, hidden=2
    )  # fmt: skip
    assert report.soft == 13 * 27 == report.soft_per_sentence.sum()
    assert report.gated == 4 * 27 == report.gated_per_sentence.sum()
    np.testing.assert_array_equal(report.gated_per_sentence, [27, 0, 81])
    alone = [analysis.auxiliary_flops(kind, tokens=n, input_dim=5, hidden=2) for n in (4, 0, 9)]
    np.testing.assert_array_equal(report.auxiliary_per_sentence, alone)
    assert report.auxiliary == sum(alone)
    assert report.gated_with_auxiliary == report.gated + report.auxiliary
    assert report.ratio == pytest.approx(4 / 13)
    assert report.ratio_with_auxiliary == pytest.approx((4 * 27 + sum(alone)) / (13 * 27))


def test_a_report_has_the_options_of_its_parts():
    options = {"count": "macs", "include_tanh": True, "score": "mlp1"}
    for name, value in options.items():
        report = analysis.flops_report([4], [2], 6, **{name: value})
        assert report.soft == analysis.attention_flops(4, 6, **{name: value})
    # the network of the paper, unless told otherwise
    auxiliary = analysis.auxiliary_flops("lstm", tokens=4, input_dim=100, hidden=100)
    assert report.auxiliary == auxiliary


def test_report_of_no_tokens_has_no_ratio():
    report = analysis.flops_report([0], [0], 6)
    assert report.soft == 0
    assert np.isnan(report.ratio)
