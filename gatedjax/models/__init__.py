"""The networks of the papers, their baselines, and the tasks that train them.

All networks raise ValueError for an array of a batch that is missing or has an unexpected shape,
and all configurations for a field that is out of range; the message names the array or the field.
A section "Raises" lists only further errors.
"""

from gatedjax.models._ga_net_task import GANetTask as GANetTask
from gatedjax.models.agt import AGT as AGT
from gatedjax.models.agt import AGTConfig as AGTConfig
from gatedjax.models.agt import AGTTask as AGTTask
from gatedjax.models.ga_net import GANet as GANet
from gatedjax.models.ga_net import GANetConfig as GANetConfig
from gatedjax.models.ga_net import GateConfig as GateConfig
from gatedjax.models.ga_reader import GAReader as GAReader
from gatedjax.models.ga_reader import GAReaderConfig as GAReaderConfig
from gatedjax.models.ga_reader import GAReaderTask as GAReaderTask
from gatedjax.models.ga_reader import ga_reader_optimizer as ga_reader_optimizer
from gatedjax.models.rau import RAUClassifier as RAUClassifier
from gatedjax.models.rau import RAUConfig as RAUConfig
from gatedjax.models.rau import RAUTask as RAUTask
from gatedjax.models.rau_language import RAULanguageModel as RAULanguageModel
from gatedjax.models.rau_language import RAULanguageTask as RAULanguageTask
from gatedjax.models.ssan.encoder import SSANConfig as SSANConfig
from gatedjax.models.ssan.encoder import SSANEncoder as SSANEncoder
from gatedjax.models.ssan.nli import SSANNLI as SSANNLI
from gatedjax.models.ssan.nli import SSANNLIConfig as SSANNLIConfig
from gatedjax.models.ssan.nli import SSANNLITask as SSANNLITask
from gatedjax.models.ssan.probe import SSANProbe as SSANProbe
from gatedjax.models.ssan.probe import SSANProbeConfig as SSANProbeConfig
from gatedjax.models.ssan.probe import SSANProbeTask as SSANProbeTask
from gatedjax.models.ssan.reordering import WordReorderingConfig as WordReorderingConfig
from gatedjax.models.ssan.reordering import WordReorderingDetector as WordReorderingDetector
from gatedjax.models.ssan.reordering import WordReorderingTask as WordReorderingTask
from gatedjax.models.ssan.selector import SelectorConfig as SelectorConfig
from gatedjax.models.ssan.tagger import SSANTagger as SSANTagger
from gatedjax.models.ssan.tagger import SSANTaggerConfig as SSANTaggerConfig
from gatedjax.models.ssan.tagger import SSANTaggingTask as SSANTaggingTask
from gatedjax.models.ssan.translation import SSANTranslationTask as SSANTranslationTask
from gatedjax.models.ssan.translation import SSANTranslator as SSANTranslator
from gatedjax.models.ssan.translation import SSANTranslatorConfig as SSANTranslatorConfig
from gatedjax.models.ssan.translation import translate as translate
from gatedjax.models.transformer.search import beam_search as beam_search
from gatedjax.models.transformer.search import greedy_search as greedy_search
