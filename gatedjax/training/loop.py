"""The training loop, for a run or for several runs side by side, and its result."""

import collections
import contextlib
import dataclasses
import functools
import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gatedjax._utils.run_files import environment, write_json
from gatedjax.training.checkpoint import CheckpointMismatch, CheckpointNotSaved, CheckpointStore
from gatedjax.training.config import TrainConfig
from gatedjax.training.data import TrainData, check_batch
from gatedjax.training.distributed import Seen, agree, gather, gather_text, is_main
from gatedjax.training.identity import compare, flatten
from gatedjax.training.metrics import Metrics, Sums, to_floats
from gatedjax.training.parallel import Parallel
from gatedjax.training.progress import ProgressView, format_metrics
from gatedjax.training.step import TrainState
from gatedjax.training.task import Batch
from gatedjax.training.workdir import MetricsLog, WorkdirLock, check_workdir

REACH_STEPS = 10
"""The fewest steps after which a parameter without gradient is an error: a layer below a layer that
starts at zero has no gradient in the first steps."""
IN_FLIGHT = 2
"""The most steps in the queue of the device. Two keep it busy; with more a signal would wait."""
OWN = ("progress", "keep_checkpoints")
"""Training options in which processes may differ."""
# Arrays of tokens that batches may have, with their lengths. Padding and tokens/s count these.
TEXTS = (("lengths", "tokens"), ("document_lengths", "document"), ("query_lengths", "query"))
Hook = Callable[[str, int, TrainState, dict[str, Any]], bool | None]
"""A function (event, step, state, metrics), see `fit`."""


class NonFiniteError(RuntimeError):
    """Raised after too many updates in a row that are not finite.

    Attributes:
      step: the step, from 1, of the last of these updates.
    """

    def __init__(self, message: str, step: int) -> None:
        super().__init__(message)
        self.step = step


@dataclasses.dataclass(frozen=True)
class FitResult:
    """The result of `fit`. All arrays are NumPy arrays, not replicated over devices.

        >>> result = FitResult(None, {}, None, 0, {}, [], "signal", 10, signal.SIGINT)
        >>> result.stopped, result.exit_code
        ('signal', 130)

    Attributes:
      state: the last train state.
      best_params: the parameters of the best evaluation; without evaluation data the last ones.
      best_shared: the shared carried arrays that belong to best_params; None without any.
      best_step: the step of the best evaluation; without evaluation data the last step.
      best_metrics: the metrics of the best evaluation by name; {} without evaluation data.
      history: the metrics of all evaluations by name, oldest first, each with its "step".
      stopped: "done" after all steps, at the end of the data or by the hook, "early" after early
        stopping, "signal" after a signal.
      steps: the number of updates, including those before the run was continued.
      signal: the number of the signal that stopped the run; None without a signal.
    """

    state: Any
    best_params: Any
    best_shared: Any
    best_step: int
    best_metrics: dict[str, float]
    history: list[dict[str, float]]
    stopped: Literal["done", "early", "signal"]
    steps: int
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """An exit status for programs: 130 after Ctrl-C, else 0, also after SIGTERM."""
        return 130 if self.signal == signal.SIGINT else 0


class StoppedBySignal(SystemExit):
    """For programs that a signal must not let go on: `raise StoppedBySignal([result])`.

    It is a `SystemExit`, so that a script that does not catch it ends with the status 128 + the
    number of the signal. The run is saved and can continue.

    Attributes:
      results: a list of `FitResult`: the result of `fit`, or of each lane of `fit_lanes`.
    """

    def __init__(self, results: list[FitResult]) -> None:
        self.results = results
        super().__init__(128 + int(results[0].signal or 0))


@dataclasses.dataclass
class Record:
    """The progress of a run, which checkpoints save as JSON."""

    step: int = 0
    best_step: int = 0  # 0 before the first evaluation
    best_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    without_improvement: int = 0  # evaluations since the best
    skipped_in_a_row: int = 0
    finished: Literal["done", "early"] | None = None
    history: list[dict[str, float]] = dataclasses.field(default_factory=list)

    def add(self, step: int, metrics: dict[str, float], config: TrainConfig) -> bool:
        """Records an evaluation and returns True if it is the best so far."""
        name = config.best_metric
        if name not in metrics:
            raise ValueError(f"best_metric must be one of {sorted(metrics)}, got {name!r}")
        self.history.append({"step": step, **metrics})
        # NaN is never an improvement, so that early stopping counts it.
        better = config.is_better(metrics[name], self.best_metrics.get(name, math.nan))
        if better:
            self.best_step, self.best_metrics = step, metrics
        self.without_improvement = 0 if better else self.without_improvement + 1
        return better

    def decide(self, step: int, at_end: bool, config: TrainConfig) -> None:
        """Sets `finished` if the run ends after this step."""
        if self.finished is None:
            self.step, patience = step, config.early_stop_patience
            if at_end:
                self.finished = "done"
            elif patience is not None and self.without_improvement >= patience:
                self.finished = "early"


@contextlib.contextmanager
def signals(on_first: Callable[[], None]) -> Iterator[list[int]]:
    """Yields a list that receives SIGTERM or SIGINT; a second signal has its usual effect."""
    received: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        del frame
        signal.signal(number, before[number])
        received.append(number)
        if len(received) == 1:
            on_first()

    # Python allows only the main thread to set signal handlers.
    if threading.current_thread() is threading.main_thread():
        before = {n: signal.signal(n, note) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclasses.dataclass
class Program:
    """The functions of a run, or of L runs side by side, with a first axis L of all arrays."""

    like: TrainState  # shapes and dtypes
    sums: Sums  # shape and dtype of the metrics of a step
    init: Callable[[], TrainState]
    # (state, sums, batch, numbers of the runs that have not ended) -> (state, sums, skipped)
    step: Callable[..., tuple[TrainState, Sums, jax.Array]]
    evaluate: Callable[[TrainState], list[dict[str, float]]] | None  # the metrics of each run
    point: Callable[[TrainState], Any]  # {"params": ..., "shared": ...}, which are evaluated
    # Removes filler rows and lanes, because their number depends on the devices.
    cut: Callable[[Any], Any]
    fill: Callable[[Any], Any]  # the inverse of `cut`
    data: TrainData
    names: list[dict[str, Any]]  # entries of a run in metrics.jsonl; [{}] for a single run
    rates: Callable[[Any], dict[str, Any]]  # from opt_state to learning rates by name
    reachable: list[str]  # the paths of the trained parameters


def rows_of(metrics: Metrics) -> list[dict[str, float]]:
    """Returns the metrics of each run, NumPy arrays [L] or of no axis, as floats."""
    host = jax.tree.map(np.atleast_1d, metrics)
    count = max((len(ratio.total) for ratio in host.values()), default=1)
    return [to_floats(jax.tree.map(lambda x, i=i: x[i], host)) for i in range(count)]


@jax.jit
def keep_better(better: jax.Array, new: Any, old: Any) -> Any:
    """Returns `new` for the runs that improved, and `old` for the rest."""
    mask = lambda x: better.reshape(better.shape + (1,) * (x.ndim - better.ndim))  # noqa: E731
    return jax.tree.map(lambda n, o: jnp.where(mask(n), n, o), new, old)


class Run:
    """A run in its workdir: its arrays, its progress, and its log.

    It is a context: at its end all saves are complete, and the workdir is free. No file is written
    before it begins, so that all checks come first. Of several processes the first writes.
    """

    def __init__(
        self,
        program: Program,
        config: TrainConfig,
        parallel: Parallel,
        workdir: str | Path | None,
        identity: dict[str, Any],
        metadata: dict[str, Any],
        hook: Hook | None,
    ) -> None:
        self.program, self.config, self.parallel = program, config, parallel
        self.path = None if workdir is None else Path(workdir)
        self.identity, self.metadata = identity, metadata
        self.hook, self.asked = hook, False  # True if the hook has asked to stop
        self.reports = is_main() or not parallel.several
        self.records = [Record() for _ in program.names]
        self.step, self.fresh, self.evaluated = 0, True, False
        self.view = ProgressView(config.num_steps, 0, False)
        self.lock: WorkdirLock | None = None
        self.log_file: MetricsLog | None = None
        self.store: CheckpointStore | None = None
        self.queue: collections.deque[Any] = collections.deque()
        self.shapes: set[Any] = set()
        self.reached: Any = False
        zeros = functools.partial(jax.tree.map, jnp.zeros_like, program.sums)
        # An array of NumPy's would be lent to the step, which overwrites it.
        self._zeros = jax.jit(zeros, out_shardings=parallel.whole)
        self.seen, self.compared = Seen(), 0  # the batches since the processes compared them
        self.begin_interval()

    # -- beginning and end ---------------------------------------------------------------------

    def __enter__(self) -> "Run":
        try:
            self._open()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with contextlib.ExitStack() as stack:
            # The lock is released last, because the next run may write as soon as it is free.
            if self.lock is not None:
                stack.callback(self.lock.release)
            if self.log_file is not None:
                stack.callback(self.log_file.close)
            self.view.close()
            if self.store is not None:
                with self._saving():
                    self.store.close()

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        try:
            yield
        except CheckpointNotSaved:
            # If the save failed because the folder is gone, WorkdirLost is the clearer error.
            if self.lock is not None:
                self.lock.check()
            raise

    def _open(self) -> None:
        """Locks the workdir, and restores the newest good checkpoint or begins."""
        program, config, restored = self.program, self.config, None
        if self.parallel.several:
            values = flatten(self.identity)
            agree({k: v for k, v in values.items() if k.rpartition(".")[2] not in OWN})
        if self.path is not None:
            self._take(self.path)
            every = config.checkpoint_every
            self.store = CheckpointStore(
                self.path / "checkpoints", config.keep_checkpoints, every=every
            )
            restored = self.store.restore_newest(self._check, **self._like())
        if restored is not None:
            self.step, record, trees = restored
            program.data.restore(record["data"])
        elif self.path is not None and self.log_file is not None:
            # Only a new run writes these files, so that they describe its beginning.
            about = self.identity["settings"] | self.metadata | {"train": config}
            write_json(self.path / "config.json", about)
            write_json(self.path / "environment.json", environment(config.seed))
        if self.log_file is not None:
            self.log_file.begin(None if restored is None else self.step)
        if restored is None:
            self.state = program.init()
            self.best = jax.tree.map(jnp.copy, program.point(self.state))
            self.sums = self._zeros()
        else:
            trees = program.fill(trees)
            self.state, self.best, self.sums = trees["state"], trees["best"], trees["sums"]
            self.records = [Record(**entry) for entry in record["runs"]]
            for run in self.records:
                # A larger num_steps continues a run that was done.
                run.finished = None if run.finished == "done" else run.finished
                run.decide(self.step, self.step >= config.num_steps, config)
            self.fresh, self.compared = False, self.step
        self.skipped = self.sums.metrics()["skipped"].total
        if not self.over:
            self.view = ProgressView(config.num_steps, self.step, config.progress and self.reports)
        if restored is not None and self.reports:
            self._tell_resumed()

    def _take(self, path: Path) -> None:
        """Creates and locks the folder, and reads its log before anything in it is changed."""
        error: Exception | None = None
        try:
            if self.reports:
                path.mkdir(parents=True, exist_ok=True)
                # The lock file marks a folder as that of a run, so foreign files are looked for
                # before it is created.
                check_workdir(path)
                self.lock = WorkdirLock(path)
                self.log_file = MetricsLog(path / "metrics.jsonl")
        except Exception as caught:  # the other processes wait for an answer
            error = caught
        texts = [""]
        if self.parallel.several:
            texts = gather_text("" if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        if any(texts):
            raise RuntimeError(f"process 0 cannot start: {next(filter(None, texts))}")

    def _like(self) -> dict[str, Any]:
        """Returns shapes, dtypes and shardings of the trees of a checkpoint."""
        program, parallel = self.program, self.parallel
        best = jax.eval_shape(program.point, program.like)
        trees = {"state": program.like, "best": best, "sums": program.sums}
        shardings = {name: parallel.shardings(trees[name]) for name in ("state", "best")}
        shardings["sums"] = jax.tree.map(lambda _: parallel.whole, program.sums)
        cut = jax.eval_shape(program.cut, trees)

        def place(full: Any, shape: Any, sharding: Any) -> Any:
            # An array without its filler rows need not be divisible by the devices.
            sharding = sharding if full.shape == shape.shape else parallel.whole
            return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

        return jax.tree.map(place, trees, cut, shardings)

    def _check(self, record: dict[str, Any]) -> None:
        """Raises CheckpointMismatch if a checkpoint belongs to another run."""
        notice = compare(record["identity"], self.identity, self.path)
        if record["step"] > self.config.num_steps:
            raise CheckpointMismatch(
                f"{self.path} is at step {record['step']}, and num_steps is "
                f"{self.config.num_steps}: use another workdir, or num_steps of at least "
                f"{record['step']}"
            )
        if notice and self.reports:
            self.view.notice(notice)

    def _tell_resumed(self) -> None:
        if self.over:
            early = any(record.finished == "early" for record in self.records)
            zero = self.config.optimizer.schedule in ("cosine", "linear")
            longer = "" if early or zero else ", or a larger num_steps to continue it"
            self.view.notice(
                f"{self.path} holds a finished run of {self.step} steps: nothing is trained, and "
                f"its result is returned. Use another workdir to train anew{longer}."
            )
            return
        self.view.message(f"resuming {self.path} from step {self.step}")
        if not self.program.data.repeatable:
            warnings.warn(
                f"the run continues from step {self.step} with the next batches that train_data "
                "give, because repeatable=False: its result differs from that of an unbroken run, "
                "and examples may be trained on again or left out",
                RuntimeWarning,
                stacklevel=5,
            )

    def results(self, number: int | None) -> list[FitResult]:
        """Returns the result of each run after the signal `number`, or None; all processes must
        call it.
        """
        self._keep_unevaluated()
        cut = self.program.cut({"state": self.state, "best": self.best})
        trees = self.parallel.fetch(cut)
        lanes = [trees]
        if self.program.names[0]:
            lanes = [
                jax.tree.map(lambda x, i=i: x[i, ...], trees) for i in range(len(self.records))
            ]
        return [
            FitResult(
                state=lane["state"],
                best_params=lane["best"]["params"],
                best_shared=lane["best"]["shared"],
                best_step=record.best_step if record.best_metrics else record.step,
                best_metrics=record.best_metrics,
                history=record.history,
                stopped=(record.finished or "done") if self.over or number is None else "signal",
                steps=record.step,
                signal=number,
            )
            for record, lane in zip(self.records, lanes, strict=True)
        ]

    # -- a step --------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """True if all runs have ended."""
        return not self.running()

    def running(self) -> list[int]:
        """Returns the numbers, from 0, of the runs that have not ended."""
        return [number for number, record in enumerate(self.records) if record.finished is None]

    def tell(self, event: str, metrics: dict[str, Any] | None = None, step: int = -1) -> None:
        """Calls the hook, at the present step if none is given."""
        if self.hook is not None:
            step = self.step if step < 0 else step
            self.asked = bool(self.hook(event, step, self.state, metrics or {})) or self.asked

    def advance(self, batch: Batch) -> None:
        """Trains for a step."""
        running = self.running()
        shape = tuple([(name, np.shape(x)) for name, x in batch.items()])
        new = shape not in self.shapes
        if new:  # each new shape is compiled
            self.view.phase("compile")
        if self.parallel.several:
            self.seen.add(batch)
        began = time.perf_counter()
        self.state, self.sums, skipped = self.program.step(self.state, self.sums, batch, running)
        self.step += 1
        self.queue.append((self.step, skipped, running, batch.get("example_id", ())))
        if len(self.queue) > IN_FLIGHT:
            self.queue[-1 - IN_FLIGHT][1].block_until_ready()
        self.count(batch)
        if new:
            # The time of the compilation is measured, so that speeds and the estimated end leave
            # it out.
            jax.block_until_ready(skipped)
            seconds = time.perf_counter() - began
            self.shapes.add(shape)
            self.compiling += seconds
            self.view.once(seconds, steps=1)
            self.view.phase("train")
            self.tell("compiled")
        self.tell("step")
        self.view.step(self.step)

    def begin_interval(self) -> None:
        """Begins the interval until the next line of metrics.jsonl."""
        self.began, self.compiling = time.perf_counter(), 0.0
        self.steps = self.tokens = self.cells = 0  # cells are tokens and padding

    def count(self, batch: Batch) -> None:
        """Adds a step to the interval: the numbers of tokens, and of tokens and padding."""
        self.steps += 1
        for lengths, cells in TEXTS:
            if lengths in batch and cells in batch:
                self.tokens += int(np.sum(batch[lengths]))
                self.cells += math.prod(np.shape(batch[cells]))

    def speeds(self) -> dict[str, float]:
        """Returns speeds, without the time of compilation, and the share of padding, by name."""
        seconds = max(time.perf_counter() - self.began - self.compiling, 1e-9)
        speeds = {
            "steps_per_s": round(self.steps / seconds, 3),
            "compile_s": round(self.compiling, 3),
        }
        if self.cells:
            speeds["tokens_per_s"] = round(self.tokens / seconds, 1)
            speeds["padding"] = round(1 - self.tokens / self.cells, 4)
        return speeds

    def write(self, number: int, line: dict[str, Any]) -> None:
        """Writes a line of metrics.jsonl for a run, and passes it to the hook."""
        if self.reports:
            line = line | self.program.names[number] | {"time": round(time.time(), 3)}
            if self.log_file is not None:
                self.log_file.write(line)
            self.tell(line["split"], line)

    def log(self) -> None:
        """Writes a line for each run with the means since its last line."""
        sums = self.report_skipped()
        if not self.steps:
            return
        self._refuse_unreached(sums.pop("reached").total)
        lines, speeds = rows_of(sums), self.speeds()
        rates = {k: np.broadcast_to(v, len(lines)) for k, v in
                 self.program.rates(self.state.opt_state).items()}  # fmt: skip
        running = self.running()
        for number in running:
            rates_of_run = {name: float(rate[number]) for name, rate in rates.items()}
            lines[number] |= rates_of_run | speeds
            self.write(number, {"split": "train", "step": self.step, **lines[number]})
        first = lines[running[0]]
        self.view.log(self.step, {k: float(np.mean([lines[i][k] for i in running])) for k in first})
        self.sums = self._zeros()
        self.skipped = np.zeros_like(self.skipped)
        self.begin_interval()

    def _refuse_unreached(self, counts: Any) -> None:
        """Raises ValueError if the gradient of a parameter was 0 in all steps of a fresh run."""
        self.reached = self.reached | (np.atleast_2d(counts) > 0).any(axis=0)
        if not self.fresh or self.step < REACH_STEPS:
            return
        self.fresh = False
        names = zip(self.program.reachable, self.reached, strict=True)
        if never := [name for name, reached in names if name and not reached]:
            suffix = f" and {len(never) - 8} more" if never[8:] else ""
            raise ValueError(
                f"every parameter must have a gradient, got exactly 0 in all {self.step} steps for "
                f"{', '.join(map(repr, never[:8]))}{suffix}: use them in the loss. What is not "
                "trained belongs into Carried(shared=...), or its path into the attribute frozen "
                f"of the task: frozen = ({never[0]!r},)"
            )

    def report_skipped(self) -> Metrics:
        """Writes a line for each skipped update, refuses too many in a row; returns the sums."""
        queue, self.queue = self.queue, collections.deque()
        sums = self.sums.metrics()
        before, self.skipped = self.skipped, sums["skipped"].total
        if np.array_equal(before, self.skipped):  # the common case, without a transfer per step
            for number in self.running() if queue else ():
                self.records[number].skipped_in_a_row = 0
            return sums
        flags = jax.device_get([skipped for _, skipped, _, _ in queue])
        for (step, _, running, ids), skipped in zip(queue, map(np.atleast_1d, flags), strict=True):
            for number, record in enumerate(self.records):
                if number not in running or not skipped[number]:
                    record.skipped_in_a_row = 0
                    continue
                record.skipped_in_a_row += 1
                rows = np.asarray(ids)[number] if np.ndim(ids) > 1 else np.asarray(ids)
                self._report_skipped(number, step, [int(i) for i in rows if i >= 0])
        return sums

    def _report_skipped(self, number: int, step: int, ids: list[int]) -> None:
        record, limit, name = self.records[number], self.config.max_skipped, ""
        if self.program.names[number]:
            name = f"seed {self.program.names[number]['seed']}: "
        self.write(number, {"split": "skipped", "step": step, "example_id": ids})
        shown = ", ".join(map(str, ids[:8]))
        shown += f", and {len(ids) - 8} more in metrics.jsonl" if ids[8:] else ""
        self.view.message(
            f"{name}step {step}: loss, gradient or updated parameters are not finite, update "
            f"skipped; examples {shown}"
        )
        if record.skipped_in_a_row > limit:
            saved = f"The checkpoints in {self.path} were saved before. " if self.path else ""
            raise NonFiniteError(
                f"{name}{record.skipped_in_a_row} updates in a row had a loss, gradient or updated "
                f"parameters that are not finite (limit {limit}), the last at step {step} with "
                f"examples {shown}. {saved}Look for non-finite inputs, or lower the learning rate "
                "in another workdir.",
                step,
            )

    def evaluate(self) -> None:
        """Evaluates the runs, logs the metrics and keeps the best parameters."""
        histories = [self.records[number].history for number in self.running()]
        is_due = any(not history or history[-1]["step"] != self.step for history in histories)
        if self.program.evaluate is None or not is_due:
            return
        self.view.phase("evaluate")
        self.tell("evaluate")
        # Lines about skipped updates come before lines of later steps.
        self.report_skipped()
        began, values = time.perf_counter(), self.program.evaluate(self.state)
        better = np.zeros(len(self.records), bool)
        for number in self.running():
            better[number] = self.records[number].add(self.step, values[number], self.config)
        self._keep(better)
        for number in self.running():
            names = self.program.names[number]
            title = "".join(f", {k} {v:g}" for k, v in names.items()) or ": evaluation"
            self.view.message(f"step {self.step}{title}: {format_metrics(values[number])}")
            self.write(number, {"split": "eval", "step": self.step, **values[number]})
        self.view.phase("train")
        # An evaluation takes no part in the speed of training, and the first one compiles.
        seconds = time.perf_counter() - began
        self.began += seconds
        if not self.evaluated:
            self.view.once(seconds)
        self.evaluated = True

    def _keep(self, better: np.ndarray) -> None:
        """Keeps the present parameters of some runs as their best."""
        if better.any():
            point = self.program.point(self.state)
            width = len(jax.tree.leaves(point)[0]) if self.program.names[0] else 1
            # The last lanes may be copies of the last run.
            mask = better[np.minimum(np.arange(width), len(better) - 1)]
            self.best = keep_better(mask if self.program.names[0] else mask[0], point, self.best)

    def _keep_unevaluated(self) -> None:
        # Before the first evaluation the best parameters are the last ones.
        self._keep(np.array([not record.best_metrics for record in self.records]))

    def save(self) -> None:
        """Saves a checkpoint in the background."""
        self.report_skipped()
        if self.parallel.several:
            self.seen.compare(f"batches of steps {self.compared + 1} to {self.step}")
            self.compared = self.step
        if self.store is None:
            return
        self.view.phase("save")
        self.tell("save")
        if self.lock is not None:
            self.lock.check()
        if self.log_file is not None:
            # A checkpoint that survives a power cut must find the lines up to its step.
            self.log_file.sync()
        record = {
            "step": self.step,
            "runs": [dataclasses.asdict(record) for record in self.records],
            "data": self.program.data.state(),
            "identity": self.identity,
            "metadata": self.metadata,
        }
        self._keep_unevaluated()
        trees = {"state": self.state, "best": self.best, "sums": self.sums}
        with self._saving():
            self.store.save(self.step, record, **self.program.cut(trees))
        self.view.phase("train")

    def report_saved(self, *, wait: bool = False) -> None:
        """Reports a checkpoint that became complete."""
        if self.store is not None:
            with self._saving():
                for step in self.store.poll(wait=wait):
                    self.tell("saved", step=step)


def train(run: Run, received: list[int]) -> int | None:
    """Trains until all runs end, the hook asks to stop, or a signal comes; returns the number of
    the signal or None. A round trains a step and then, where it is due, logs, evaluates and saves.
    A stop adds only the save, so that the checkpoint is that of an unbroken run at this step.
    """
    config, number, is_asked = run.config, None, False
    run.begin_interval()
    batches = run.program.data.read(run.step, config.num_steps)
    while not run.over and number is None and not is_asked:
        batch = next(batches, None)
        if batch is not None:
            run.advance(check_batch(batch, f"the batch of step {run.step}"))
        # A save that failed is reported soon after it, not at the next checkpoint.
        run.report_saved()
        at_end = batch is None or run.step >= config.num_steps
        logs = run.step % config.log_every == 0
        if at_end or logs:
            run.log()
        if at_end or run.step % config.eval_every == 0:
            run.evaluate()
        if batch is None:
            warnings.warn(
                f"train_data ended after {run.step} batches, and so does the run, although "
                f"num_steps is {config.num_steps}: repeat the data, as dataset.repeat() of grain "
                "does, or give fewer steps",
                RuntimeWarning,
                stacklevel=3,
            )
        for record in run.records:
            record.decide(run.step, at_end, config)
        # Several processes stop together, at a step where they log.
        if not run.parallel.several:
            number, is_asked = received[0] if received else None, run.asked
        elif logs or run.over:
            flags = gather(np.array([received[0] if received else 0, run.asked])).max(axis=0)
            number, is_asked = int(flags[0]) or None, bool(flags[1])
        # The signal is looked for before the save, so that a run that stops is always saved.
        if run.over or number or is_asked or run.step % config.checkpoint_every == 0:
            run.save()
    run.report_saved(wait=True)
    # A signal during the last step is returned, because a program may start another run next.
    return received[0] if received and not run.parallel.several else number


def train_all(run: Run) -> list[FitResult]:
    """Trains the runs of a workdir and returns their results."""
    when = "at the next log line" if run.parallel.several else "after this step"
    stopping = f"stopping {when}; again to stop now"
    with signals(lambda: run.view.notice(stopping)) as received, run:
        number = None if run.over else train(run, received)
        return run.results(number)
