"""`python -m gatedjax export WORKDIR --out FOLDER`: the best parameters of a run, in a folder.

Like `checkpoints` it takes no lock and runs on the CPU.
"""

import argparse
import json
import sys
from pathlib import Path

import jax

from gatedjax._commands import reason
from gatedjax._terminal import say
from gatedjax._types import Tree
from gatedjax.export import ModelCard, save
from gatedjax.export._folder import check_target
from gatedjax.export._names import unflatten
from gatedjax.training.checkpoint import CheckpointDamaged, CheckpointStore
from gatedjax.training.identity import flatten


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gatedjax export",
        description="Save the best parameters of a run with its configuration and a model card.",
    )
    parser.add_argument("workdir", type=Path, help="what `fit` was given")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--step", type=int, help="checkpoint to read (default: the newest)")
    parser.add_argument("--name", help="title of the card (default: the work folder's name)")
    parser.add_argument("--licence", default="", help='of the parameters, as in "Apache-2.0"')
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export")
    return parser


def _results(workdir: Path, best_step: int) -> dict[str, Tree]:
    """results.json, if it belongs to the parameters of this step."""
    path = workdir / "results.json"
    if not path.is_file():
        return {}
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    return results if isinstance(results, dict) and results.get("best_step") == best_step else {}


def _card(options: argparse.Namespace, record: dict[str, Tree], step: int) -> ModelCard:
    run = record.get("run", {})
    best_step = run.get("best_step") if run.get("best_metrics") else step
    results = _results(options.workdir, best_step)
    splits = {"validation": run.get("best_metrics", {}), "test": results.get("test", {})}
    metrics = {
        f"{split} {name}": value
        for split, values in splits.items()
        for name, value in values.items()
        if isinstance(value, int | float)
    }
    settings = flatten(record.get("metadata", {}))
    seeds = {value for name, value in settings.items() if name.endswith("train.seed")}
    return ModelCard(
        name=options.name or options.workdir.resolve().name,
        description=f"The parameters of step {best_step} of a run, from its checkpoint {step}.",
        data=str(results.get("data", "")),
        metrics=metrics,
        seeds=tuple(sorted(seeds)),
        licence=options.licence,
    )


def _export(options: argparse.Namespace) -> None:
    check_target(options.out, options.overwrite, "--overwrite")
    store = CheckpointStore(options.workdir / "checkpoints")
    steps = store.steps()
    step = (steps[-1] if steps else None) if options.step is None else options.step
    if step not in steps:
        wanted = "a checkpoint" if step is None else f"checkpoint {step}"
        raise FileNotFoundError(f"{store.directory} does not hold {wanted}, only {steps}")
    record = store.record(step)
    if "lanes" in record.get("run", {}):
        raise ValueError(
            f"{options.workdir} trained several seeds together: save the best_params of one of "
            "the results of fit_lanes with gatedjax.export.save"
        )
    params = unflatten(store.arrays(step, "best"))
    folder = save(
        options.out,
        params,
        config=record.get("metadata", {}),
        card=_card(options, record, step),
        overwrite=options.overwrite,
    )
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    say(f"{folder}: {size:,} parameters of checkpoint {step}")


def main(args: list[str]) -> int:
    """Runs the command; 0, or 1 for a damaged checkpoint, or 2 for what cannot be done."""
    options = _parser().parse_args(args)
    # Orbax asks JAX for its processes, which starts a backend: a GPU belongs to the run.
    jax.config.update("jax_platforms", "cpu")
    try:
        _export(options)
    except (CheckpointDamaged, OSError, ValueError, TypeError) as error:
        say(f"error: {reason(error)}", file=sys.stderr)
        return 1 if isinstance(error, CheckpointDamaged) else 2
    return 0
