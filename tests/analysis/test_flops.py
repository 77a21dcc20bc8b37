"""Operation counts against sums over loops of multiplications and additions."""

import numpy as np
import pytest

from gatedjax import analysis
from gatedjax.analysis._flops import bilstm_flops


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


def test_totals_are_beyond_32_bits_and_are_python_integers():
    assert type(analysis.attention_flops(np.int32(2**30), np.int32(200))) is int
    assert analysis.attention_flops(np.int32(2**30), np.int32(200)) == 2**30 * 803


def test_bilstm_counts_two_directions_of_four_gates():
    # per direction and step: 4 gates of H rows over E + H inputs and a bias, two operations each
    assert bilstm_flops(3, 5, 2) == 2 * 3 * (4 * 2) * (5 + 2 + 1) * 2
    assert bilstm_flops(0, 5, 2) == 0


def test_auxiliary_networks_by_hand():
    common = {"tokens": 3, "input_dim": 5, "hidden": 2}
    lstm = analysis.auxiliary_flops("lstm", **common)
    assert lstm == bilstm_flops(3, 5, 2) + 3 * 2 * (2 * 2)
    assert analysis.auxiliary_flops("fnn", **common) == 3 * (2 * 5 * 2 + 2 * 2)
    projections, pairs, readout = 3 * 3 * 2 * 5 * 2, 9 * (2 * 2 + 3 + 2 * 2), 3 * 2 * 2
    assert analysis.auxiliary_flops("att", **common) == projections + pairs + readout


def test_the_attention_network_is_counted_as_if_all_texts_had_the_same_length():
    common = {"tokens": 10, "input_dim": 5, "hidden": 2, "examples": 2}
    both = analysis.auxiliary_flops("att", **common)
    each = analysis.auxiliary_flops("att", tokens=5, input_dim=5, hidden=2)
    assert both == 2 * each
