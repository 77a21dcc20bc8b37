"""Operations of attention, with and without the network that predicts the gates.

All counts are Python integers, because the count for the test set of IMDB needs more than 32 bits.
"""

import operator
from typing import Literal, SupportsIndex

from gatedjax._utils.choices import check_choice

Count = Literal["flops", "macs"]
Auxiliary = Literal["lstm", "fnn", "att"]


def attention_flops(
    attended: int, width: int, *, count: Count = "flops", include_tanh: bool = False
) -> int:
    """Counts the operations of attention over some tokens: scores, softmax and weighted sum.

    F = n (4D + 3): per token 2D for w . tanh(h), 2D for the weighted sum, 3 for the softmax.

        >>> attention_flops(10, 100)
        4030

    Args:
      attended: n, the number of tokens with a score, in a text or summed over texts.
      width: D, width of the states.
      count: "flops" counts multiplications and additions; "macs" counts a multiplication with the
        addition that follows it as a single operation, 2D per token, without the softmax.
      include_tanh: True adds an operation per evaluated tanh, D per token.

    Returns:
      The number of operations.

    Reference: Xue et al. 2020 (GA-Net), table 3. The paper has no formula; this formula is inferred
      from its figures, about 400 per token.
    """
    attended, width = _check_integer("attended", attended, 0), _check_integer("width", width, 1)
    check_choice(Count, count=count)
    # MACs leave out the softmax, because it has no product that is followed by an addition.
    per_token = 4 * width + 3 if count == "flops" else 2 * width
    if include_tanh:
        per_token += width
    return attended * per_token


def bilstm_flops(length: int, input_dim: int, hidden: int) -> int:
    """Counts the operations of a bidirectional LSTM: 2 directions * length * 8H (E + H + 1)."""
    return 2 * length * 8 * hidden * (input_dim + hidden + 1)


def auxiliary_flops(
    kind: Auxiliary, *, tokens: int, input_dim: int, hidden: int, examples: int = 1
) -> int:
    """Counts the operations of the network that predicts the gates, with its readout.

    Per token: "lstm" has 16H (E + H + 1) + 4H; "fnn" has 2EH + 2H; "att" has 6EH + 2H, and 4H + 3
    for each pair of tokens of a text, counted as if all texts had the same length, which gives the
    least number. The tanh is not counted.

        >>> auxiliary_flops("fnn", tokens=10, input_dim=100, hidden=100)
        202000

    Args:
      kind: the network, "lstm", "fnn" or "att".
      tokens: number of tokens, summed over all texts.
      input_dim: E, the width of the inputs.
      hidden: H, the width of the states (per direction for "lstm").
      examples: number of texts.

    Returns:
      The number of operations.
    """
    check_choice(Auxiliary, kind=kind)
    tokens, examples = _check_integer("tokens", tokens, 0), _check_integer("examples", examples, 0)
    input_dim = _check_integer("input_dim", input_dim, 1)
    hidden = _check_integer("hidden", hidden, 1)
    if tokens and not examples:
        raise ValueError(f"examples must be at least 1 for {tokens} tokens, got 0")
    if kind == "lstm":
        return bilstm_flops(tokens, input_dim, hidden) + tokens * 4 * hidden
    if kind == "fnn":
        return tokens * (2 * input_dim * hidden + 2 * hidden)
    # Rounded up, because lengths are whole numbers.
    pairs = -(-tokens * tokens // max(examples, 1))
    return tokens * (6 * input_dim * hidden + 2 * hidden) + pairs * (4 * hidden + 3)


def _check_integer(name: str, value: SupportsIndex, least: int) -> int:
    """Returns a value as an int after checking that it is at least `least`."""
    try:
        # `int` would round 2.5 to 2 without an error.
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
