"""BLEU of translations, by sacrebleu (the extra `mt`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gatedjax._utils.missing import missing


class Scored(NamedTuple):
    """BLEU of a corpus in percent, and how sacrebleu computed it."""

    score: float
    signature: str
    statistics: list[list[int]]
    """Of every sentence: length of the translation and of the reference, then matched and all
    n-grams for n from 1 to 4."""


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> Scored:
    """Scores detokenised translations, cased, as sacrebleu does by default; one per reference."""
    if len(translations) != len(references) or not references:
        raise ValueError(
            f"there must be one translation per reference, got {len(translations)} and "
            f"{len(references)}"
        )
    metric = bleu_metric()
    score = metric.corpus_score(list(translations), [list(references)])
    statistics = []
    for translation, reference in zip(translations, references, strict=True):
        one = metric.corpus_score([translation], [[reference]])
        statistics.append([one.sys_len, one.ref_len, *one.counts, *one.totals])
    return Scored(float(score.score), str(metric.get_signature()), statistics)


def bleu_metric() -> Any:
    """Sacrebleu's metric as it is by default."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError(missing("BLEU needs", "sacrebleu")) from error
    return BLEU()
