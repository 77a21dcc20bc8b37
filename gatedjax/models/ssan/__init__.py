"""SSAN (Geng et al. 2020): an encoder with tokens that select the tokens they attend to."""

from gatedjax.models.ssan.encoder import SSANConfig as SSANConfig
from gatedjax.models.ssan.encoder import SSANDropout as SSANDropout
from gatedjax.models.ssan.encoder import SSANEncoder as SSANEncoder
from gatedjax.models.ssan.encoder import SSANEncoderOutput as SSANEncoderOutput
from gatedjax.models.ssan.encoder import SSANMemory as SSANMemory
from gatedjax.models.ssan.encoder import SSANOrder as SSANOrder
from gatedjax.models.ssan.selector import SelectorConfig as SelectorConfig
