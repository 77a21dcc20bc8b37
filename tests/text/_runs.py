"""Work folders as runs leave them, of networks that nobody trained: nothing is compiled."""

import dataclasses
import json

import jax
import numpy as np

from gatedjax import data as gdata
from gatedjax._utils.json import to_json_values
from gatedjax.models import (
    GAReader,
    GAReaderConfig,
    GAReaderTask,
    SSANTranslator,
    SSANTranslatorConfig,
)
from gatedjax.text.models._reader import Reader, question
from gatedjax.text.models._translator import SearchConfig, parameters_like
from gatedjax.training import CheckpointStore
from tests._grouped import grouped

DOCUMENT = "Anna saw the house. Then Emil went to the garden."
QUESTION = ["--question", "XXXXX saw the house.", "--candidates", "Anna", "Emil"]


def drawn(like, seed):
    """Parameters of these shapes."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(0, 0.5, x.shape).astype(x.dtype), like)


def saved(workdir, params, metadata, steps=(2,)):
    """A work folder with checkpoints; those of several steps differ."""
    store = CheckpointStore(workdir / "checkpoints", keep=len(steps))
    for step in steps:
        now = jax.tree.map(lambda x, step=step: (x * step).astype(x.dtype), params)
        record = {"runs": [{"best_step": step, "best_metrics": {}}], "metadata": metadata}
        store.save(
            step, record, state={"params": now, "step": np.int32(step)}, best={"params": now}
        )
    store.close()
    (workdir / "config.json").write_text(json.dumps(metadata))
    return workdir


def reader_run(workdir):
    """Of a GA Reader that reads letters."""
    workdir.mkdir()
    words = gdata.Vocabulary(
        [*["anna", "saw", "the", "house", ".", "then", "emil", "went", "to", "@begin", "@end"]]
    )
    letters = gdata.Characters.build(words)
    config = grouped(GAReaderConfig, hidden=3, embedding_dim=4, char_dim=2, hops=2)
    words.save(workdir / "vocabulary.json")
    (workdir / "characters.json").write_text(json.dumps({"alphabet": letters.alphabet}))
    data = {"max_doc_len": None, "oov_std": 1.0}
    reader = Reader(config, data, words, letters, {})
    batch = reader._batches(question("it", "@placeholder", ["it"]))[0]
    task = GAReaderTask(GAReader(config, len(words), num_characters=len(letters)))
    like = jax.eval_shape(lambda key: task.init(key, batch), jax.random.key(0))
    settings = {"model": to_json_values(config), "data": data, "train": {"seed": 0}}
    metadata = {"config": settings, "vocabulary": words.digest()}
    return saved(workdir, drawn(like, 0), metadata)


LINES = ["A dog runs.", "A cat sits."]


def translator_run(workdir):
    """Of a translator that was tested with the mean of two checkpoints."""
    workdir.mkdir()
    pieces = gdata.BytePairs.train(LINES, 40)
    pieces.save(workdir / "bpe.json")
    config = grouped(
        SSANTranslatorConfig,
        num_layers=1,
        decoder_layers=1,
        hidden=4,
        filter_size=4,
        num_heads=2,
        select_layers=(1,),
    )
    search = SearchConfig(beam_size=2, extra=2, average=2)
    model = to_json_values(config)
    settings = {"model": model, "search": dataclasses.asdict(search), "train": {"seed": 0}}
    metadata = {"config": settings, "vocabulary": pieces.digest()}
    record = {"search": settings["search"], "vocabulary_size": len(pieces), "config": settings}
    (workdir / "results.json").write_text(json.dumps(record))
    params = drawn(parameters_like(SSANTranslator(config, len(pieces))), 1)
    return saved(workdir, params, metadata, steps=(1, 2))
