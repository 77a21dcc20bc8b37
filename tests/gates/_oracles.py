"""Gates in plain NumPy: every estimator as its paper writes it, gate by gate, and all patterns."""

import itertools

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logit(u):
    return np.log(u) - np.log1p(-u)


def smooth(gates, weights):
    """A loss of three gates and more with interactions; analytic."""
    return sigmoid(gates @ weights + gates[0] * gates[1] * 2 - 0.7) + 0.3 * gates[2] ** 3


def slope(f, point):
    """The gradient of an analytic function by complex steps."""
    out = np.zeros(len(point))
    for i in range(len(point)):
        moved = point.astype(complex)
        moved[i] += 1e-30j
        out[i] = f(moved).imag / 1e-30
    return out


def truth(f, logits):
    """Expectation, variance, gradient, effects and best pattern by a loop over all patterns."""
    n, p = len(logits), sigmoid(np.asarray(logits, np.float64))
    rows = [np.array(bits, np.float64)[::-1] for bits in itertools.product([0, 1], repeat=n)]
    weights = [np.prod([p[i] if b[i] else 1 - p[i] for i in range(n)]) for b in rows]
    values = [f(b) for b in rows]
    mean = sum(w * v for w, v in zip(weights, values, strict=True))
    square = sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True))
    gradient = sum(w * v * (b - p) for w, v, b in zip(weights, values, rows, strict=True))
    effects = np.zeros(n)
    for i in range(n):
        for w, v, b in zip(weights, values, rows, strict=True):
            effects[i] += w * v / p[i] if b[i] else -w * v / (1 - p[i])
    return mean, square, gradient, effects, rows[int(np.argmin(values))]


# ---- the estimators: (f, logits, noise [rows, n]) -> value, gradient


def soft_gumbel(f, a, noise, tau=0.5):
    s = sigmoid((a + noise[0]) / tau)
    return f(s), slope(f, s) * s * (1 - s) / tau


def st_gumbel(f, a, noise, tau=0.5):
    s, b = sigmoid((a + noise[0]) / tau), (a + noise[0] > 0).astype(float)
    return f(b), slope(f, b) * s * (1 - s) / tau


def straight_through(f, a, noise):
    b, p = (a + noise[0] > 0).astype(float), sigmoid(a)
    return f(b), slope(f, b) * p * (1 - p)


def reinmax(f, a, noise):
    """The paper's form: 2 (pi_1 part) - 1/2 (pi_0 part), of two classes (open, closed)."""
    n, p = len(a), sigmoid(a)
    b = (a + noise[0] > 0).astype(float)
    derivative, out = slope(f, b), np.zeros(n)
    for i in range(n):
        pi = np.array([p[i], 1 - p[i]])
        one_hot = np.array([b[i], 1 - b[i]])
        mean = (pi + one_hot) / 2

        def jacobian(q):
            return np.diag(q) - np.outer(q, q)

        # logits of the classes are (a, 0) and the gate is the open component
        out[i] = derivative[i] * (2 * jacobian(mean) - jacobian(pi) / 2)[0, 0]
    return f(b), out


def mean_field(f, a, noise):
    p = sigmoid(a)
    return f(p), slope(f, p) * p * (1 - p)


def reinforce(f, a, noise, baseline=0.0):
    b = (a + noise[0] > 0).astype(float)
    return f(b), (f(b) - baseline) * (b - sigmoid(a))


def leave_one_out(f, a, noise):
    rows = (a + noise > 0).astype(float)
    values, k = [f(b) for b in rows], len(rows)
    gradient = np.zeros(len(a))
    for j in range(k):
        others = [values[i] for i in range(k) if i != j]
        gradient += (values[j] - np.mean(others)) * (rows[j] - sigmoid(a)) / k
    return np.mean(values), gradient


def arm(f, a, noise):
    u = sigmoid(noise[0])
    b, c = (u > sigmoid(-a)).astype(float), (u < sigmoid(a)).astype(float)
    return (f(b) + f(c)) / 2, (f(b) - f(c)) * (u - 0.5)


def disarm(f, a, noise):
    u = sigmoid(noise[0])
    b, c = (u > sigmoid(-a)).astype(float), (u < sigmoid(a)).astype(float)
    sign = (-1) ** c * (b != c)
    return (f(b) + f(c)) / 2, (f(b) - f(c)) / 2 * sign * sigmoid(np.abs(a))


def local_expectation(f, a, noise):
    b, p = (a + noise[0] > 0).astype(float), sigmoid(a)
    out = np.zeros(len(a))
    for i in range(len(a)):
        on, off = b.copy(), b.copy()
        on[i], off[i] = 1, 0
        out[i] = p[i] * (1 - p[i]) * (f(on) - f(off))
    return f(b), out


def relax(f, a, noise, critic):
    """With the conditional noise of Tucker et al., appendix: u' from v, then its logit."""
    b, v = (a + noise[0] > 0).astype(float), sigmoid(noise[1])

    def kept(x):
        p = sigmoid(x)
        u = np.where(b > 0, v * p + (1 - p), v * (1 - p))
        return critic(np.log(p / (1 - p)) + np.log(u / (1 - u)))

    score = b - sigmoid(a)
    control = slope(lambda x: critic(x + noise[0]), a) - slope(kept, a)
    return f(b), (f(b) - kept(a)) * score + control


def rebar(f, a, noise, tau=0.5, eta=1.0):
    return relax(f, a, noise, lambda z: eta * f(sigmoid(z / tau)))


def _stretched(f, soft, a):
    def cut(x):
        s = soft(x) * 1.2 - 0.1
        return np.where(s.real < 0, 0, np.where(s.real > 1, 1, s))

    return f(cut(a)), slope(lambda x: f(cut(x)), a)


def hard_concrete(f, a, noise, tau=2 / 3):
    return _stretched(f, lambda x: sigmoid((x + noise[0]) / tau), a)


def hard_kuma(f, a, noise):
    u = sigmoid(noise[0])

    def soft(x):
        alpha, beta = np.exp(x / 2), np.exp(-x / 2)
        return (1 - (1 - u) ** (1 / beta)) ** (1 / alpha)

    return _stretched(f, soft, a)


def exact(f, a, noise):
    mean, _, gradient, _, _ = truth(f, a)
    return mean, gradient
