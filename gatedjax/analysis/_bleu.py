"""BLEU of translations, computed by sacrebleu (the extra `mt`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gatedjax._utils.missing import missing


class Scored(NamedTuple):
    """BLEU of a corpus, with the counts of each sentence."""

    score: float
    signature: str
    # For each sentence the lengths of translation and reference, the numbers of matching n-grams
    # for n from 1 to 4, and the numbers of all n-grams.
    statistics: list[list[int]]


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> Scored:
    """Computes cased BLEU of detokenised translations with the default options of sacrebleu.

    >>> corpus_bleu(["the cat sat on the mat"], ["the cat sat on the mat"]).statistics
    [[6, 6, 6, 5, 4, 3, 6, 5, 4, 3]]
    """
    if len(translations) != len(references) or not references:
        raise ValueError(
            "translations and references must have the same length of at least 1, got "
            f"{len(translations)} and {len(references)}"
        )
    metric = bleu_metric()
    score = metric.corpus_score(list(translations), [list(references)])
    statistics = []
    for translation, reference in zip(translations, references, strict=True):
        # A corpus of a single sentence gives the counts; `sentence_score` would warn about options
        # that matter only for its score.
        sentence = metric.corpus_score([translation], [[reference]])
        lengths = [sentence.sys_len, sentence.ref_len]
        statistics.append([*lengths, *sentence.counts, *sentence.totals])
    return Scored(float(score.score), str(metric.get_signature()), statistics)


def bleu_metric() -> Any:
    """Returns sacrebleu's metric, an object `sacrebleu.BLEU`, with its default options."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError(missing("BLEU needs", "sacrebleu")) from error
    return BLEU()
