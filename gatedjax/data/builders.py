"""TFDS builders of the data sets that TFDS does not have in this form.

`Sst`, `Trec`, `Ptb`; cloze questions: `CbtNe`, `CbtCn`, `CnnCloze`, `DailyMailCloze`, `WdwStrict`,
`WdwRelaxed`; sentences: `Sick`, `ConllSrl`, `EwtTrees`, `SentevalProbing`, `WordReordering`;
parallel text: `Multi30k`, `Kftt`, `Iwslt14EnRo`, `Wmt14EnDe`.

They need no TensorFlow, because their files are array_record. `load` uses them. They can be used
directly: `Sst(data_dir="data", file_format="array_record")` has the methods
`download_and_prepare()`, for files at hand with DownloadConfig(manual_dir=...), and
`as_data_source("train")`.

Importing this module imports tensorflow_datasets. Lines that cannot be used are listed in the
metadata of the prepared set, with the counts.
"""

from typing import TYPE_CHECKING

from gatedjax.data.tfds._builders import BUILDERS as _BUILDERS

if TYPE_CHECKING:
    from gatedjax.data.tfds._builders import SetBuilder

    def __getattr__(name: str) -> type[SetBuilder]: ...


# The builders are generated from the declarations of the data sets.
globals().update({builder.__name__: builder for builder in _BUILDERS.values()})
