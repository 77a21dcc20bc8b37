"""`gatedjax export WORKDIR --out FOLDER`: saves the parameters of a run in a folder.

Like `gatedjax checkpoints` it takes no lock and runs on the CPU.
"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro

from gatedjax._utils.cli import parse, program, status_of
from gatedjax._utils.fields import at_least
from gatedjax._utils.limits import read_limited
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.types import Tree
from gatedjax.export import ModelCard, save
from gatedjax.export._card import facts_of, title_of
from gatedjax.export._folder import check_target
from gatedjax.export._tensors import unflatten
from gatedjax.text.models._folders import belongings, check_single
from gatedjax.training import average_params
from gatedjax.training.checkpoint import (
    CheckpointDamaged,
    CheckpointStore,
    saved_description,
    saved_settings,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Saves the best parameters of a run in a folder.

    The folder also has the configuration and a model card. It has the vocabulary and the names of
    the classes if the work folder has them.
    """

    workdir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WORKDIR")]
    """The work folder of the run."""
    out: Path
    """The folder to write."""
    step: Unset[int] = None
    """The step of the checkpoint to read (default: the newest)."""
    average: Annotated[Unset[int], at_least(1)] = None
    """Save the mean of this many of the newest checkpoints (default: for a translator the number in
    its configuration; else the best parameters)."""
    name: Unset[str] = None
    """The title of the card (default: the name of the work folder)."""
    licence: str = ""
    """The licence of the parameters, such as "Apache-2.0"."""
    overwrite: Flag = False
    """Replace an earlier export."""


def _results(workdir: Path, best_step: int) -> dict[str, Tree]:
    """Returns the content of results.json; {} if it is missing or of parameters of another step."""
    path = workdir / "results.json"
    if not path.is_file():
        return {}
    try:
        results = json.loads(read_limited(path).decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON: {error}: restore it, or remove it") from None
    # Results of other parameters would be wrong numbers on the card.
    return results if isinstance(results, dict) and results.get("best_step") == best_step else {}


def _card(options: ExportOptions, record: dict[str, Tree], step: int) -> ModelCard:
    """Returns the model card of a run, with its metrics."""
    # Without an evaluation no parameters are best, so the last ones are exported.
    run: dict[str, Any] = next(iter(record.get("runs", ())), {})
    best_step = run["best_step"] if run.get("best_metrics") else step
    results = _results(options.workdir, best_step)
    splits = {"validation": run.get("best_metrics", {}), "test": results.get("test", {})}
    seed = saved_settings(record).get("train", {}).get("seed")
    return ModelCard(
        name=options.name or title_of(options.workdir.resolve().name),
        description=f"The parameters of step {best_step} of a run, from its checkpoint {step}.",
        data=str(results.get("data", "")),
        metrics={
            f"{split} {name}": value
            for split, values in splits.items()
            for name, value in values.items()
            if isinstance(value, int | float)
        },
        seeds=() if seed is None else (seed,),
        licence=options.licence,
    )


def _export(options: ExportOptions) -> int:
    # The target is checked first, because reading a checkpoint may take long.
    check_target(options.out, options.overwrite, "--overwrite")
    store = CheckpointStore(options.workdir / "checkpoints")
    steps = store.steps()
    step = (steps[-1] if steps else None) if options.step is None else options.step
    if step not in steps:
        which = "no checkpoint" if step is None else f"no checkpoint {step}"
        raise FileNotFoundError(f"{which} in {store.directory}: it has {steps}")
    record = store.record(step)
    check_single(record, options.workdir)
    about = saved_description(record)
    kind, files = belongings(options.workdir, about)
    params, card = unflatten(store.arrays(step, "best"))["params"], _card(options, record, step)
    origin = f"checkpoint {step}"
    count = _average_count(options, kind, about)
    if count > 1:
        params, averaged = average_params(options.workdir, params, count)
        origin = f"checkpoints {', '.join(map(str, averaged))}"
        card = dataclasses.replace(
            card, description=f"The mean of the parameters in {origin} of a run."
        )
    folder = save(
        options.out,
        params,
        config={**about, **facts_of(kind)},
        card=card,
        files=files,
        overwrite=options.overwrite,
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    say(f"{folder}: {size:,} parameters of {origin}")
    return 0


def _average_count(options: ExportOptions, kind: str, about: dict[str, Tree]) -> int:
    """Returns the number of checkpoints to average; 1 means the best parameters."""
    if options.step is not None and options.average is not None:
        raise ValueError("--average or --step must be left out, got both: give one of the two")
    if options.step is None and options.average is None and kind == "translation":
        return about["config"]["search"].get("average", 1)
    return options.average or 1


def main(args: list[str]) -> int:
    """Runs the command and returns its exit status: 0, 1 (a damaged checkpoint) or 2 (an error)."""
    options = parse(ExportOptions, args, f"{program()} export")
    # Orbax starts a backend of JAX. It must not be the GPU, because the run may be using it.
    jax.config.update("jax_platforms", "cpu")
    return status_of(lambda: _export(options), CheckpointDamaged)
