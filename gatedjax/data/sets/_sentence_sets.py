"""Sets of sentence pairs, semantic roles, parallel text, trees and probes, as `load` knows them."""

from gatedjax.data.sets import _nli, _parallel, _probing, _reordering, _srl, _treebank
from gatedjax.data.sets._parallel import CORPORA, Corpus
from gatedjax.data.sets._set import Set


def _parallel_set(corpus: Corpus) -> Set:
    names = {part: " or ".join(names) for part, names in corpus.files.items()}
    pair = "{{{},{}}}".format(*corpus.languages)
    return Set(
        official=corpus.official,
        where=corpus.where,
        files=lambda folder, part: (
            _parallel.find(corpus, folder, part),
            names[part].replace("{}", pair),
        ),
        read=lambda path, part: _parallel.read(path),
        examples=lambda rows, base, o: _parallel.examples(
            corpus, rows, base=base, source=o["source"]
        ),
        classes=lambda o: _parallel.CLASSES,
        options={"source": corpus.languages},
        count=lambda path: _parallel.count(path),  # type: ignore[arg-type]
        by_line=not any(".tags." in name for name in corpus.files["train"]),
    )


def _probing_set(task: str) -> Set:
    return Set(
        official=_probing.OFFICIAL,
        where=f"{_probing.URL}{task}.txt",
        files=lambda folder, part: (_probing.find(task, folder, part), f"{task}.txt (or .gz)"),
        read=lambda path, part: _probing.read(path),
        examples=lambda rows, base, o: _probing.examples(rows, base=base),
        # by the labels of the training part
        classes=lambda o: (),
        source=_probing.source,
    )


SENTENCE_SETS: dict[str, Set] = {
    "sick": Set(
        official=_nli.SICK_OFFICIAL,
        where=f"{_nli.SICK_URL} ({', '.join(_nli.SICK_ARCHIVES.values())}; or unpacked)",
        files=lambda folder, part: (_nli.find_sick(folder, part), _nli.SICK_FILES[part]),
        read=lambda path, part: _nli.read_sick(path),
        examples=lambda rows, base, o: _nli.examples(rows, base=base),
        classes=lambda o: _nli.CLASSES,
        count=_nli.count_sick,
        by_line=False,
    ),
    "snli": Set(
        official=_nli.SNLI_OFFICIAL,
        where=f"{_nli.SNLI_URL} (unpacked)",
        files=lambda folder, part: (_nli.find_snli(folder, part), _nli.SNLI_FILES[part]),
        read=lambda path, part: _nli.read_snli(path),
        examples=lambda rows, base, o: _nli.examples(rows, base=base),
        classes=lambda o: _nli.CLASSES,
        skipped=lambda rows, o: _nli.skipped(rows),
    ),
    "conll_srl": Set(
        official=_srl.OFFICIAL,
        where=_srl.WHERE,
        files=lambda folder, part: (
            _srl.find(folder, part),
            f"{' or '.join(_srl.FILES[part])} (plain or .gz), or {_srl.FOLDERS[part]}/*_gold_conll",
        ),
        read=lambda path, part: _srl.read(path),
        examples=lambda rows, base, o: _srl.examples(rows, base=base),
        classes=lambda o: _srl.CLASSES,
        skipped=lambda rows, o: _srl.skipped(rows),
        count=_srl.count,
        by_line=False,
        ids_per_row=_srl.IDS_PER_SENTENCE,
        unit="sentences",
    ),
    "ewt_trees": Set(
        official=_treebank.OFFICIAL,
        where=_treebank.WHERE,
        files=lambda folder, part: (_treebank.find(folder, part), _treebank.FILES[part]),
        read=lambda path, part: _treebank.read(path),
        examples=lambda rows, base, o: _treebank.examples(rows, base=base),
        classes=lambda o: _treebank.CLASSES,
    ),
    "word_reordering": Set(
        official=_reordering.OFFICIAL,
        where=_reordering.WHERE,
        files=lambda folder, part: (
            _reordering.find(folder, part),
            f"{_reordering.FILES[part]}.{{x,y}}",
        ),
        read=lambda path, part: _reordering.read(path),
        examples=lambda rows, base, o: _reordering.examples(rows, base=base),
        classes=lambda o: _reordering.CLASSES,
        count=_reordering.count,
    ),
    **{_probing.set_name(task): _probing_set(task) for task in _probing.TASKS},
    **{name: _parallel_set(corpus) for name, corpus in CORPORA.items()},
}
