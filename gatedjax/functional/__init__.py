"""The mathematics: pure functions of arrays that compose under `jit`, `grad` and `vmap`.

Imports JAX only. Masks are bool with True = real, batch first, time second; rows without real
positions give zeros and finite gradients; softmax, noise and sums are float32 or wider. In the
annotations *B stands for any number of leading axes, such as examples and heads, and a row is an
entry of these axes, such as an example.

All functions also work under `jax.disable_jit`, under `jax.numpy_dtype_promotion("strict")`, and in
programs of `jax.export` that leave sizes open.

Arguments are checked while tracing: TypeError for a wrong type or dtype, ValueError for a shape
that does not fit or a value that an option cannot have. The message names the argument, the
expected value and the given one. A section "Raises" lists only the errors beyond these.
"""

from gatedjax.functional._attention import attention_pool as attention_pool
from gatedjax.functional._attention import gated_softmax as gated_softmax
from gatedjax.functional._attention import length_mask as length_mask
from gatedjax.functional._attention import local_attention_weights as local_attention_weights
from gatedjax.functional._attention import masked_softmax as masked_softmax
from gatedjax.functional._attention import relaxed_gated_softmax as relaxed_gated_softmax
from gatedjax.functional._bits import byte_dropout as byte_dropout
from gatedjax.functional._bits import feature_bytes as feature_bytes
from gatedjax.functional._bits import pair_bytes as pair_bytes
from gatedjax.functional._bits import pair_uniform as pair_uniform
from gatedjax.functional._clip import clip_gradient as clip_gradient
from gatedjax.functional._compact import compact_attention_pool as compact_attention_pool
from gatedjax.functional._compact import open_indices as open_indices
from gatedjax.functional._compact import plan_capacity as plan_capacity
from gatedjax.functional._cross_entropy import linear_cross_entropy as linear_cross_entropy
from gatedjax.functional._directions import bidirectional as bidirectional
from gatedjax.functional._directions import recurrence_backend as recurrence_backend
from gatedjax.functional._dot_product import scaled_dot_product as scaled_dot_product
from gatedjax.functional._gated_attention import Gating as Gating
from gatedjax.functional._gated_attention import gated_attention as gated_attention
from gatedjax.functional._gru import GRUWeights as GRUWeights
from gatedjax.functional._gru import gru as gru
from gatedjax.functional._gru import gru_step as gru_step
from gatedjax.functional._highway import GatedStackWeights as GatedStackWeights
from gatedjax.functional._highway import HighwayWeights as HighwayWeights
from gatedjax.functional._highway import gated_stack as gated_stack
from gatedjax.functional._highway import highway_mix as highway_mix
from gatedjax.functional._highway import highway_stack as highway_stack
from gatedjax.functional._lstm import LSTMState as LSTMState
from gatedjax.functional._lstm import LSTMWeights as LSTMWeights
from gatedjax.functional._lstm import lstm as lstm
from gatedjax.functional._lstm import lstm_step as lstm_step
from gatedjax.functional._masked_scan import masked_scan as masked_scan
from gatedjax.functional._pairs import AttentionCache as AttentionCache
from gatedjax.functional._pairs import append_to_cache as append_to_cache
from gatedjax.functional._persistent._backend import RecurrenceBackend as RecurrenceBackend
from gatedjax.functional._persistent._backend import (
    RecurrenceImplementation as RecurrenceImplementation,
)
from gatedjax.functional._pointer_sum import Aggregation as Aggregation
from gatedjax.functional._pointer_sum import pointer_sum as pointer_sum
from gatedjax.functional._pointer_sum import pointer_sum_indexed as pointer_sum_indexed
from gatedjax.functional._random import example_dropout as example_dropout
from gatedjax.functional._random import example_keys as example_keys
from gatedjax.functional._random import example_noise as example_noise
from gatedjax.functional._rau import RAUAttention as RAUAttention
from gatedjax.functional._rau import RAUConcatWeights as RAUConcatWeights
from gatedjax.functional._rau import RAUHiddenWeights as RAUHiddenWeights
from gatedjax.functional._rau import RAUMatrixWeights as RAUMatrixWeights
from gatedjax.functional._rau import RAUTimeState as RAUTimeState
from gatedjax.functional._rau import RAUWeights as RAUWeights
from gatedjax.functional._rau import rau as rau
from gatedjax.functional._rau import rau_attention as rau_attention
from gatedjax.functional._rau import rau_step as rau_step
from gatedjax.functional._relative import relative_bias as relative_bias
from gatedjax.functional._relaxations import ensure_open as ensure_open
from gatedjax.functional._relaxations import gate_penalty as gate_penalty
from gatedjax.functional._relaxations import gumbel_noise as gumbel_noise
from gatedjax.functional._relaxations import gumbel_sigmoid as gumbel_sigmoid
from gatedjax.functional._relaxations import gumbel_softmax as gumbel_softmax
from gatedjax.functional._relaxations import hard_gates as hard_gates
from gatedjax.functional._relaxations import log_gumbel_sigmoid as log_gumbel_sigmoid
from gatedjax.functional._relaxations import logistic_noise as logistic_noise
from gatedjax.functional._relaxations import sample_gates as sample_gates
from gatedjax.functional._relaxations import score_function_loss as score_function_loss
from gatedjax.functional._relaxations import threshold_gates as threshold_gates
from gatedjax.functional._selection import selection_vectors as selection_vectors
from gatedjax.functional._selective import (
    relaxed_selective_attention as relaxed_selective_attention,
)
from gatedjax.functional._selective import selective_attention as selective_attention
from gatedjax.functional._selective import selective_weights as selective_weights
from gatedjax.functional._selective import source_to_token as source_to_token
from gatedjax.functional._selector import mean_over_pairs as mean_over_pairs
from gatedjax.functional._selector import selection_counts as selection_counts
from gatedjax.functional._selector import selection_entropy as selection_entropy
from gatedjax.functional._selector import selection_log_prob as selection_log_prob
from gatedjax.functional._selector import selection_statistics as selection_statistics
from gatedjax.functional._selector import uniform_sigmoid as uniform_sigmoid
from gatedjax.functional._sinusoids import sinusoids as sinusoids
from gatedjax.functional._skip_lstm import skip_lstm as skip_lstm
