"""Trains a recurrent policy on chunks of experience that run over the ends of episodes."""

import jax
import jax.numpy as jnp
import optax

from gatedjax import functional as F

ENVS, STEPS, HIDDEN = 64, 12, 16


def act(params, carry, key):
    """A step of the environments: the bit of the first step is the right action at the last."""
    (bit, age, length, hidden), keys = carry, jax.random.split(key, 3)
    is_first, is_last = age == 0, age == length - 1
    x = jnp.stack([is_first * (2.0 * bit - 1), is_first, is_last], axis=-1)
    initial = jnp.where(is_first[:, None], 0, hidden)
    hidden, _ = F.gru(params["gru"], x[:, None], initial=initial)
    log_probs = jax.nn.log_softmax(hidden @ params["policy"])
    action = jax.random.categorical(keys[0], log_probs)
    log_prob = jnp.take_along_axis(log_probs, action[:, None], axis=-1)[:, 0]
    reward = is_last * (2.0 * (action == bit) - 1)
    bit = jnp.where(is_last, jax.random.randint(keys[1], ENVS, 0, 2), bit)
    length = jnp.where(is_last, jax.random.randint(keys[2], ENVS, 2, 6), length)
    age = jnp.where(is_last, 0, age + 1)
    return (bit, age, length, hidden), (x, is_first, is_last, action, log_prob, reward)


@jax.jit
def train_step(params, opt_state, carry, key):
    keys, hidden = jax.random.split(key, STEPS), carry[-1]
    carry, chunk = jax.lax.scan(lambda carry, key: act(params, carry, key), carry, keys)
    x, is_first, is_last, action, log_prob, reward = (jnp.moveaxis(leaf, 0, 1) for leaf in chunk)

    def loss(params):
        """REINFORCE. The learner runs the chunk at once, from the state at its beginning."""
        zeros = jnp.zeros_like(hidden)
        _, states = F.gru(params["gru"], x, initial=hidden, resets=is_first, reset_to=zeros)
        log_probs = jax.nn.log_softmax(states @ params["policy"])
        again = jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]
        return -jnp.sum(reward * again) / jnp.sum(is_last), jnp.max(jnp.abs(again - log_prob))

    gradient, difference = jax.grad(loss, has_aux=True)(params)
    updates, opt_state = optimizer.update(gradient, opt_state)
    params = optax.apply_updates(params, updates)
    return params, opt_state, carry, jnp.sum(reward) / jnp.sum(is_last), difference


keys, optimizer = jax.random.split(jax.random.key(0), 3), optax.adam(1e-2)
shapes = (3, 3 * HIDDEN), (HIDDEN, 3 * HIDDEN), (HIDDEN, 2)
kernel, recurrent, policy = map(jax.nn.initializers.glorot_uniform(), keys, shapes)
params = {"gru": F.GRUWeights(kernel, recurrent, jnp.zeros(3 * HIDDEN)), "policy": policy}
rows = jnp.arange(ENVS)
carry = rows % 2, 0 * rows, 2 + rows % 4, jnp.zeros((ENVS, HIDDEN))
opt_state, rewards = optimizer.init(params), []
for i in range(150):
    params, opt_state, carry, reward, gap = train_step(params, opt_state, carry, jax.random.key(i))
    assert gap < 1e-5  # the learner repeats the probabilities of the actor, over all resets
    rewards.append(float(reward))
assert sum(rewards[-10:]) / 10 > 0.9  # 0 without memory, 1 is the best
