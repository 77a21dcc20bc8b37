"""Operations of attention, with and without the network that predicts the gates.

All counts are Python integers, because the count for the test set of IMDB needs more than 32 bits.
"""

import operator
from typing import Literal, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from gatedjax._utils.choices import check_choice

Count = Literal["flops", "macs"]
Score = Literal["zhou", "mlp1"]
Auxiliary = Literal["lstm", "fnn", "att"]


class FlopsReport(NamedTuple):
    """Operations of soft and gated attention, in total and for each of N sentences.

    The fields per sentence are int64 [N].

    Attributes:
      soft: attention over all tokens, all sentences.
      gated: attention over the open tokens, all sentences.
      auxiliary: the network that predicts the gates, all sentences.
      gated_with_auxiliary: gated + auxiliary.
      ratio: gated / soft; NaN without tokens.
      ratio_with_auxiliary: gated_with_auxiliary / soft; NaN without tokens.
      soft_per_sentence: attention over all tokens, per sentence.
      gated_per_sentence: attention over the open tokens, per sentence.
      auxiliary_per_sentence: the network that predicts the gates, per sentence.
    """

    soft: int
    gated: int
    auxiliary: int
    gated_with_auxiliary: int
    ratio: float
    ratio_with_auxiliary: float
    soft_per_sentence: np.ndarray
    gated_per_sentence: np.ndarray
    auxiliary_per_sentence: np.ndarray


def attention_flops(
    attended: int,
    width: int,
    *,
    count: Count = "flops",
    include_tanh: bool = False,
    score: Score = "zhou",
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
      score: "zhou" is w . tanh(h); "mlp1" is w . tanh(W h + b), with 2D^2 more operations (or D^2
        MACs) per token.

    Returns:
      The number of operations.

    Reference: Xue et al. 2020 (GA-Net), table 3. The paper has no formula; this formula is inferred
      from its figures, about 400 per token.
    """
    attended, width = _check_integer("attended", attended, 0), _check_integer("width", width, 1)
    check_choice(Count, count=count)
    check_choice(Score, score=score)
    # MACs leave out the softmax, because it has no product that is followed by an addition.
    per_token = 4 * width + 3 if count == "flops" else 2 * width
    if score == "mlp1":
        per_token += 2 * width**2 if count == "flops" else width**2
    if include_tanh:
        per_token += width
    return attended * per_token


def auxiliary_flops(
    kind: Auxiliary,
    *,
    tokens: int,
    input_dim: int,
    hidden: int,
    examples: int = 1,
    squared_tokens: int | None = None,
) -> int:
    """Counts the operations of the network that predicts the gates, with its readout.

    Per token: "lstm" has 16H (E + H + 1) + 4H; "fnn" has 2EH + 2H; "att" has 6EH + 2H, and 4H + 3
    for each pair of tokens. The tanh is not counted.

        >>> auxiliary_flops("fnn", tokens=10, input_dim=100, hidden=100)
        202000

    Args:
      kind: the network, "lstm", "fnn" or "att".
      tokens: number of tokens, summed over all texts.
      input_dim: E, the width of the inputs.
      hidden: H, the width of the states (per direction for "lstm").
      examples: number of texts.
      squared_tokens: sum of the squared lengths, which only "att" needs; None assumes texts of
        equal length, which gives the smallest sum that tokens and examples allow.

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
        # Both directions of the LSTM have 8H (E + H + 1) operations for each token.
        return tokens * (2 * 8 * hidden * (input_dim + hidden + 1) + 4 * hidden)
    if kind == "fnn":
        return tokens * (2 * input_dim * hidden + 2 * hidden)
    # The sum of squares is smallest if all texts have the same length. It is rounded up, because
    # lengths are whole numbers.
    if squared_tokens is None:
        squared_tokens = -(-tokens * tokens // max(examples, 1))
    pairs = _check_integer("squared_tokens", squared_tokens, 0)
    return tokens * (6 * input_dim * hidden + 2 * hidden) + pairs * (4 * hidden + 3)


def flops_report(
    lengths: ArrayLike,
    attended: ArrayLike,
    width: int,
    *,
    auxiliary: Auxiliary = "lstm",
    input_dim: int = 100,
    hidden: int = 100,
    count: Count = "flops",
    include_tanh: bool = False,
    score: Score = "zhou",
) -> FlopsReport:
    """Compares the operations of soft and gated attention, in total and per sentence.

        >>> flops_report([10, 6], [2, 2], width=100).ratio
        0.25

    Args:
      lengths: int [N], number of tokens of each of N sentences.
      attended: int [N], number of open tokens per sentence.
      width: D, width of the states.
      auxiliary: the network that predicts the gates, "lstm", "fnn" or "att". Its operations are
        counted in flops whatever `count` is.
      input_dim: the width of the inputs of that network.
      hidden: the width of the states of that network.
      count: "flops" counts multiplications and additions of the attention; "macs" counts a
        multiplication with the addition that follows it as a single operation.
      include_tanh: True adds an operation per evaluated tanh of the attention.
      score: the form of the attention scores of states h, "zhou" for w . tanh(h) or "mlp1" for w .
        tanh(W h + b).

    Returns:
      The operations of both kinds of attention and their ratios.

    Raises:
      ValueError: for an unsuitable value, or if a sentence attends to more tokens than it has.
    """
    lengths, attended = _check_counts("lengths", lengths), _check_counts("attended", attended)
    if lengths.shape != attended.shape:
        raise ValueError(
            "lengths and attended must have the same shape, got "
            f"{lengths.shape} and {attended.shape}"
        )
    if np.any(attended > lengths):
        worst = int(np.argmax(attended > lengths))
        raise ValueError(
            f"attended must be at most lengths, got {attended[worst]} of {lengths[worst]} tokens "
            f"in sentence {worst}"
        )
    per_token = attention_flops(1, width, count=count, include_tanh=include_tanh, score=score)
    # The texts are counted separately, because the cost of "att" grows with the square of a length.
    helper = [
        auxiliary_flops(auxiliary, tokens=int(n), input_dim=input_dim, hidden=hidden)
        for n in lengths
    ]
    soft, gated = int(lengths.sum()) * per_token, int(attended.sum()) * per_token
    network = sum(helper)
    return FlopsReport(
        soft=soft,
        gated=gated,
        auxiliary=network,
        gated_with_auxiliary=gated + network,
        # Texts without a token have no operations, and so no ratio.
        ratio=gated / soft if soft else float("nan"),
        ratio_with_auxiliary=(gated + network) / soft if soft else float("nan"),
        soft_per_sentence=lengths * per_token,
        gated_per_sentence=attended * per_token,
        auxiliary_per_sentence=np.asarray(helper, np.int64),
    )


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


def _check_counts(name: str, values: ArrayLike) -> np.ndarray:
    """Returns `values` [N] as int64 after checking that they are integers and not negative."""
    values = np.asarray(values)
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ValueError(
            f"{name} must be integers of shape [N], got shape {values.shape} and dtype "
            f"{values.dtype}"
        )
    values = values.astype(np.int64)
    if np.any(values < 0):
        raise ValueError(f"{name} must not be negative, got {values.min()}")
    return values
