"""Trains and evaluates one RAU, GRU or LSTM: `python -m experiments.rau --preset digits`."""

import dataclasses
import difflib
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from experiments.ga_net.cli import fail
from experiments.ga_net.results import jsonable
from experiments.rau.config import PRESETS, Config


def parse(args: list[str]) -> Config:
    """Reads a run's options; those that are not given come from the preset."""
    name = "digits"
    for i, arg in enumerate(args):
        if arg.startswith("--preset="):
            name = arg.removeprefix("--preset=")
        elif arg == "--preset" and i + 1 < len(args):
            name = args[i + 1]
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        fail(f"unknown preset {name!r}.{hint} Presets: {', '.join(PRESETS)}.")
    return tyro.cli(Config, args=args, prog="python -m experiments.rau", default=PRESETS[name])


def run(config: Config) -> dict[str, Any]:
    """Trains, tests the best parameters by validation accuracy, and returns the record."""
    from experiments.ga_net.run import hardware
    from gatedjax import data as gdata
    from gatedjax.models import RAUClassifier, RAUTask
    from gatedjax.training import evaluate, fit, make_parallel
    from gatedjax.training.log import write_json

    start = time.perf_counter()
    options: dict[str, Any] = {}
    if config.data.name != "digits":
        options = {"data_dir": config.data.data_dir, "manual_dir": config.data.manual_dir}
    splits: dict[str, Any] = {
        split: gdata.load(config.data.name, split, **options)
        for split in ("train", "validation", "test")
    }
    size, width = config.data.batch_size, config.data.eval_batch_size
    train = gdata.ImageBatches(splits["train"], batch_size=size, seed=config.train.seed)
    validation = gdata.ImageBatches.eval(splits["validation"], batch_size=width)
    test = gdata.ImageBatches.eval(splits["test"], batch_size=width)
    task = RAUTask(RAUClassifier(config.model, num_classes=10))
    workdir = Path(config.workdir or f"runs/rau/{config.data.name}-{config.model.cell}")
    recorded = {k: dataclasses.asdict(getattr(config, k)) for k in ("data", "model", "train")}
    for folder in ("data_dir", "manual_dir"):
        recorded["data"].pop(folder)
    settings = jsonable(recorded)
    parallel = make_parallel(config.train.parallel, accumulate=config.train.accumulate)
    result = fit(
        task,
        train,
        validation,
        config.train,
        workdir,
        metadata={"config": settings},
        parallel=parallel,
    )
    record = {
        "data": config.data.name,
        "cell": config.model.cell,
        "seed": config.train.seed,
        "config": settings,
        "stopped": result.stopped,
        "exit_code": result.exit_code,
        "steps": result.steps,
        "best_step": result.best_step,
        "validation": result.best_metrics,
    }
    if result.stopped != "signal":
        metrics, predictions = evaluate(task, result.best_params, test, parallel)
        order = np.argsort(predictions["example_id"], kind="stable")
        correct = "".join("1" if c > 0 else "0" for c in predictions["correct"][order])
        record |= {"test": metrics, "test_n": len(order), "correct": correct}
        record |= {"seconds": round(time.perf_counter() - start, 1), "hardware": hardware()}
        write_json(workdir / "results.json", record)
    return record


def main(args: list[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    config = parse(sys.argv[1:] if args is None else args)
    from experiments.ga_net.run import use_all_cores

    use_all_cores(config.cpu_devices)
    try:
        record = run(config)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        fail(str(error))
    if record["stopped"] == "signal":
        print("stopped; the same command continues")
        return record["exit_code"]
    accuracy, best = record["test"]["accuracy"], record["best_step"]
    print(f"{record['cell']} on {record['data']}: test accuracy {accuracy:.4f}, step {best}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
