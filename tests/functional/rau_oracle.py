"""The recurrent attention unit of one row at one step, in NumPy, from the equations."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def numpy_rau_step(
    weights,
    h,
    x,
    drop,
    *,
    attention="feature_proj",
    rescale=False,
    reset_after=False,
    past=None,
    more=0,
    shown=None,
):
    """h' from h [H], x [D] and the logits of the steps before (time_causal appends its own).

    more: how many steps `past` does not list; shown: a list that gets the attention of the step.
    Analytic, so that complex steps give derivatives.
    """
    n = len(h)
    u = np.concatenate([x, drop * h])

    def affine(k, v=u):
        w = np.concatenate([weights.input, weights.recurrent])[:, k * n : (k + 1) * n]
        return v @ w + weights.bias[k * n : (k + 1) * n]

    r, z = sigmoid(affine(0)), sigmoid(affine(1))
    if reset_after:
        kernel = weights.recurrent[:, 2 * n : 3 * n]
        extra = 0 if weights.recurrent_bias is None else weights.recurrent_bias
        c = affine(2, np.concatenate([x, np.zeros(n)])) + r * ((drop * h) @ kernel + extra)
    else:
        c = affine(2, np.concatenate([x, r * drop * h]))
    c = np.tanh(c)

    if hasattr(weights, "hidden"):
        bias = 0 if weights.score_bias is None else weights.score_bias
        a = np.tanh(u @ weights.hidden + weights.hidden_bias) @ weights.score + bias
        v = affine(3)
    elif hasattr(weights, "score"):
        a, v = u @ weights.score + weights.score_bias, None
    else:
        a, v = affine(3), affine(4)

    if attention == "matrix":
        p = np.stack([softmax(row + a) for row in weights.affinity])
    elif attention == "time_causal":
        past.append(a)
        p = softmax(np.ravel(past))[-1:]
    else:
        p = sigmoid(a) if attention == "sigmoid" else softmax(a)
    if rescale:
        p = p * (len(past) + more if attention == "time_causal" else p.shape[-1])
    if shown is not None:
        shown.append(p)

    if attention == "additive_relu":
        return (1 - z) * h + z * c + p * np.maximum(v, 0)
    if attention == "matrix":
        s = p @ u
    elif attention == "concat":
        s = (p * u) @ weights.value + weights.value_bias
    else:
        s = p * v
    return (1 - z) * h + z * c / 2 + z * np.tanh(s) / 2
