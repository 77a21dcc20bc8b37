"""The networks of the papers, their baselines, and the tasks that train them."""

from gatedjax.models.agt import AGT as AGT
from gatedjax.models.agt import AGTConfig as AGTConfig
from gatedjax.models.agt import AGTOutput as AGTOutput
from gatedjax.models.agt import AGTTask as AGTTask
from gatedjax.models.ga_net import GANet as GANet
from gatedjax.models.ga_net import GANetConfig as GANetConfig
from gatedjax.models.ga_net import GANetOutput as GANetOutput
from gatedjax.models.ga_net import GANetTask as GANetTask
from gatedjax.models.rau import RAUClassifier as RAUClassifier
from gatedjax.models.rau import RAUConfig as RAUConfig
from gatedjax.models.rau import RAUOutput as RAUOutput
from gatedjax.models.rau import RAUTask as RAUTask
from gatedjax.models.rau_language import RAULanguageModel as RAULanguageModel
from gatedjax.models.rau_language import RAULanguageOutput as RAULanguageOutput
from gatedjax.models.rau_language import RAULanguageTask as RAULanguageTask
from gatedjax.models.ssan import SSANConfig as SSANConfig
from gatedjax.models.ssan import SSANEncoder as SSANEncoder
from gatedjax.models.ssan import SSANEncoderOutput as SSANEncoderOutput
from gatedjax.models.ssan_probe import SSANOutput as SSANOutput
from gatedjax.models.ssan_probe import SSANProbe as SSANProbe
from gatedjax.models.ssan_probe import SSANProbeConfig as SSANProbeConfig
from gatedjax.models.ssan_probe import SSANProbeTask as SSANProbeTask
from gatedjax.models.ssan_reordering import WordReorderingConfig as WordReorderingConfig
from gatedjax.models.ssan_reordering import WordReorderingDetector as WordReorderingDetector
from gatedjax.models.ssan_reordering import WordReorderingOutput as WordReorderingOutput
from gatedjax.models.ssan_reordering import WordReorderingTask as WordReorderingTask
