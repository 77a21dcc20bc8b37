"""Data sets as random-access sources, vocabulary, word vectors, and batches in length buckets.

    >>> train = load("polarity", "train")
    >>> vocabulary = Vocabulary.build([train])
    >>> batches = Batches(encode(train, vocabulary), batch_size=64, seed=0)
    >>> batches[1000]["tokens"].shape[0]  # any step: a pure function of (seed, step)
    64
    >>> questions = load("two_facts", "train")
    >>> encoded = encode_cloze(questions, cloze_vocabulary([questions]))
    >>> ClozeBatches(encoded, batch_size=32)[0]["label"].shape
    (32,)

`LanguageModelBatches` and `ImageBatches` make the batches of `load("ptb", "train")` and
`load("mnist", "train")`.

Names are imported on first use. Nothing imports tensorflow_datasets or grain before a call that
needs them; the TFDS builders are in `gatedjax.data.builders`.
"""

from typing import TYPE_CHECKING

from gatedjax._utils import lazy as _lazy

if TYPE_CHECKING:
    from gatedjax.data._load import load as load
    from gatedjax.data._load import names as names
    from gatedjax.data.batches._cloze import ClozeBatches as ClozeBatches
    from gatedjax.data.batches._cloze import ClozeShape as ClozeShape
    from gatedjax.data.batches._cloze import plan_cloze_shapes as plan_cloze_shapes
    from gatedjax.data.batches._encode import Encoded as Encoded
    from gatedjax.data.batches._encode import EncodedCloze as EncodedCloze
    from gatedjax.data.batches._encode import cloze_vocabulary as cloze_vocabulary
    from gatedjax.data.batches._encode import encode as encode
    from gatedjax.data.batches._encode import encode_cloze as encode_cloze
    from gatedjax.data.batches._images import ImageBatches as ImageBatches
    from gatedjax.data.batches._language import LanguageModelBatches as LanguageModelBatches
    from gatedjax.data.batches._plan import plan_buckets as plan_buckets
    from gatedjax.data.batches._texts import Batches as Batches
    from gatedjax.data.batches._texts import SequenceBatches as SequenceBatches
    from gatedjax.data.batches._texts import for_schedule as for_schedule
    from gatedjax.data.files._source import Source as Source
    from gatedjax.data.files._source import SourceInfo as SourceInfo
    from gatedjax.data.files._source import overlap as overlap
    from gatedjax.data.sets._images import ImageSource as ImageSource
    from gatedjax.data.sets._probing import bigram_shift as bigram_shift
    from gatedjax.data.sets._ptb import TokenStream as TokenStream
    from gatedjax.data.sets._reordering import word_reordering as word_reordering
    from gatedjax.data.text._bpe import BytePairs as BytePairs
    from gatedjax.data.text._embeddings import Embeddings as Embeddings
    from gatedjax.data.text._embeddings import load_embeddings as load_embeddings
    from gatedjax.data.text._embeddings import random_embeddings as random_embeddings
    from gatedjax.data.text._tokenize import tokenize as tokenize
    from gatedjax.data.text._vocabulary import Characters as Characters
    from gatedjax.data.text._vocabulary import ClosedVocabulary as ClosedVocabulary
    from gatedjax.data.text._vocabulary import Vocabulary as Vocabulary
else:
    __getattr__, __dir__, __all__ = _lazy.attach(__name__)
