"""Gates over positions. Deterministic maps from scores to gates, with exact derivatives.

Masks are bool with True = real; a row without a real position gives zeros and finite gradients;
sums are float32 or wider.
"""

from gatedjax.gates._maps import budget as budget
from gatedjax.gates._maps import entmax as entmax
from gatedjax.gates._maps import entmax15 as entmax15
from gatedjax.gates._maps import hard_top_k as hard_top_k
from gatedjax.gates._maps import soft_top_k as soft_top_k
from gatedjax.gates._maps import sparsemax as sparsemax
