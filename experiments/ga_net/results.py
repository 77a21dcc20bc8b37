"""Records of finished runs: one JSON file each, written only by the run itself."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.ga_net.config import Config

DEFAULT = Path(__file__).resolve().parent.parent / "results" / "ga_net"


def public_config(config: Config) -> dict[str, Any]:
    """The configuration without what belongs to one machine (folders)."""
    recorded = dataclasses.asdict(config)
    data = recorded["data"]
    data.pop("data_dir")
    data.pop("manual_dir")
    data["embeddings"] = Path(data["embeddings"]).name.removesuffix(".gz")
    return {"data": data, "model": recorded["model"], "train": recorded["train"]}


def jsonable(value: Any) -> Any:
    """The value as JSON gives it back: tuples become lists."""
    return json.loads(json.dumps(value))


@dataclasses.dataclass(frozen=True)
class Store:
    """A folder of run records.

    Attributes:
      folder: where records, figures and RESULTS.md are.
    """

    folder: Path = DEFAULT

    def path(self, data: str, variant: str, seed: int) -> Path:
        """Where the record of a run is."""
        return self.folder / "runs" / f"{data}-{variant}-seed{seed}.json"

    def get(self, data: str, variant: str, seed: int) -> dict[str, Any] | None:
        """The record, or None if the run is missing."""
        path = self.path(data, variant, seed)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def all(self, data: str, variant: str) -> list[dict[str, Any]]:
        """The records of every seed, in the order of the seeds."""
        found = self.folder.glob(f"runs/{data}-{variant}-seed*.json")
        records = [json.loads(path.read_text(encoding="utf-8")) for path in found]
        return sorted(records, key=lambda record: record["seed"])

    def variants(self, data: str) -> Iterator[str]:
        """Names of the variants that have a record."""
        names = {p.name.split("-", 1)[1] for p in self.folder.glob(f"runs/{data}-*-seed*.json")}
        yield from sorted({name.rsplit("-seed", 1)[0] for name in names})
