"""Records of finished runs: one JSON file each, written only by the run itself."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gatedjax import analysis
from gatedjax._terminal import say
from gatedjax.training import TrainConfig
from gatedjax.training.identity import as_json as jsonable
from gatedjax.training.log import write_json as write_json
from gatedjax.training.log import write_text as write_text

RESULTS = Path(__file__).resolve().parent.parent / "results"
"""Where the results of every paper are."""
NOT_RUN = "not run"


PASSING = ("exit_code", "signal")
"""What of a run's figures only the command that ran it needs to know."""


def public_config(config: Any, *more: str) -> dict[str, Any]:
    """A run's configuration without what belongs to one machine: data, model and train.

    Args:
      config: of the run; its folders and file names are left out.
      *more: other fields that make a run what it is.
    """
    recorded = dataclasses.asdict(config)
    data = recorded["data"]
    for folder in ("data_dir", "manual_dir"):
        data.pop(folder, None)
    if data.get("embeddings") is not None:
        data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    return {name: recorded[name] for name in (*more, "data", "model", "train")}


def same_run(saved: Any, config: Any, default: Any, *more: str) -> bool:
    """Whether a record's configuration is that of a run, see `public_config` and `same_config`.

    Args:
      saved: the configuration of the record.
      config: of the run.
      default: a configuration whose data and model have the defaults.
      *more: as for `public_config`.
    """
    filled = jsonable(public_config(default, *more))
    wanted = jsonable(public_config(config, *more))
    return same_config(saved, wanted, data=filled["data"], model=filled["model"])


def saved_record(record: dict[str, Any]) -> dict[str, Any]:
    """The record as it is written to a file."""
    return {key: value for key, value in record.items() if key not in PASSING}


def best(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The record of the seed that is best in validation; the smallest seed of equals."""
    return max(found, key=lambda record: record["validation"]["accuracy"]) if found else None


def same_config(saved: Any, wanted: Any, **defaults: Mapping[str, Any]) -> bool:
    """Whether a record was made with these settings.

    An option that is younger than the record was what it is by default.

    Args:
      saved: the configuration of the record.
      wanted: the configuration of the run.
      **defaults: default values by part of the configuration; those of "train" are known.
    """
    filled = {part: {**values, **saved[part]} for part, values in defaults.items()}
    return saved | filled | {"train": train_settings(saved)} == wanted


def train_settings(saved: Any) -> dict[str, Any]:
    """How a record's run was trained; an option younger than the record has its default.

    Args:
      saved: the configuration of the record.
    """
    default = jsonable(dataclasses.asdict(TrainConfig()))
    train = default | saved["train"]
    train["optimizer"] = default["optimizer"] | train["optimizer"]
    return train


def read_json(path: Path, *keys: str) -> Any:
    """Reads a file that a command wrote.

    Args:
      path: the file.
      keys: what an object must have to be used.

    Raises:
      ValueError: naming the file, if it is damaged or lacks a key.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to have it made again") from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if missing:
        raise ValueError(
            f"{path} is not a record: it has no {', '.join(missing)}; delete it to have it made "
            "again"
        )
    return value


def mean_std(values: list[float], digits: int = 4) -> str:
    """A cell of a table: mean, sample standard deviation and number of runs."""
    summary = analysis.summary(values)
    spread = "" if summary.std is None else f" ± {summary.std:.{digits}f}"
    return f"{summary.mean:.{digits}f}{spread} (n={summary.n})"


RECORD = ("config", "seed", "test", "correct")
"""What every record of a finished classifier has."""


@dataclasses.dataclass(frozen=True)
class Store:
    """A folder of run records.

    Attributes:
      folder: where records, figures and RESULTS.md are.
      keys: what every record has.
    """

    folder: Path
    keys: tuple[str, ...] = RECORD

    def path(self, data: str, variant: str, seed: int) -> Path:
        """Where the record of a run is."""
        return self.folder / "runs" / f"{data}-{variant}-seed{seed}.json"

    def get(self, data: str, variant: str, seed: int) -> dict[str, Any] | None:
        """The record, or None if the run is missing."""
        path = self.path(data, variant, seed)
        return read_json(path, *self.keys) if path.exists() else None

    def all(self, data: str, variant: str) -> list[dict[str, Any]]:
        """The records of every seed, in the order of the seeds."""
        found = self.folder.glob(f"runs/{data}-{variant}-seed*.json")
        records = [read_json(path, *self.keys) for path in found]
        return sorted(records, key=lambda record: record["seed"])

    def variants(self, data: str) -> Iterator[str]:
        """Names of the variants that have a record."""
        names = {p.name.split("-", 1)[1] for p in self.folder.glob(f"runs/{data}-*-seed*.json")}
        yield from sorted({name.rsplit("-seed", 1)[0] for name in names})


def write_results(
    folder: Path, paper: str, *, module: str, source: str, parts: list[tuple[str, str, str]]
) -> None:
    """Writes RESULTS.md of a paper.

    Args:
      folder: of the results.
      paper: short name, for the title.
      module: of the command that writes it.
      source: authors, title and year.
      parts: (heading, body, note) of every section.
    """
    lines = [
        f"# {paper}: results",
        "",
        f"Written by `python -m {module}`; not edited by hand.",
        f"Paper: {source}.",
        f'"{NOT_RUN}" means that nobody ran it here.',
        "",
    ]
    for title, body, note in parts:
        lines += [f"## {title}", "", body.rstrip(), "", note, ""]
    path = folder / "RESULTS.md"
    write_text(path, "\n".join(lines))
    say(f"wrote {path}", flush=True)
