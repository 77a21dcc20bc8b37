"""A text classifier whose gates hold by construction: a gated lexicon.

The spelling of a word decides whether it is read, and the class follows from the words read. It
needs NumPy, and SciPy for the fit and for many texts; it does not import JAX.
"""

from gatedjax.lexicon._fit import SHARES as SHARES
from gatedjax.lexicon._fit import EmptyLexicon as EmptyLexicon
from gatedjax.lexicon._fit import fit_lexicon as fit_lexicon
from gatedjax.lexicon._heads import ClassHead as ClassHead
from gatedjax.lexicon._heads import Head as Head
from gatedjax.lexicon._heads import LabelHead as LabelHead
from gatedjax.lexicon._heads import OrdinalHead as OrdinalHead
from gatedjax.lexicon._heads import RealHead as RealHead
from gatedjax.lexicon._lexicon import Lexicon as Lexicon
from gatedjax.lexicon._lexicon import Parts as Parts
from gatedjax.lexicon._lexicon import Readings as Readings
from gatedjax.lexicon._pooling import GatedPooling as GatedPooling
from gatedjax.lexicon._pooling import fit_pooling as fit_pooling
from gatedjax.lexicon._solve import choose_words as choose_words
from gatedjax.lexicon._solve import fit_weights as fit_weights
from gatedjax.lexicon._spelling import spell as spell
