"""`gatedjax gates report`: measures a trained GA-Net with all kinds of gates, and estimators."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from gatedjax._utils.cli import parse_command, program, refusals
from gatedjax._utils.fields import POSITIVE, at_least
from gatedjax._utils.json import to_json
from gatedjax._utils.limits import MOST_DRAWS, MOST_SEED
from gatedjax._utils.options import Flag, Unset
from gatedjax._utils.terminal import say
from gatedjax._utils.write import write_atomic

_STEM = "gates_report"
_PLACE = Path("gates-report")
_OF_RUN, _OF_FILE = ("preset", "manual_dir", "data_dir"), ("file", "text", "label", "encoding")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Measures the gates of a trained GA-Net, and estimators of gradients.

    It measures loss and accuracy with all kinds of gates, including the exact expectation over all
    patterns of the gates, and the bias and variance of gradient estimators at the parameters of the
    network. It prints tables, and writes a figure and JSON.

    Give exactly one of MODEL, --workdir and --toy.
    """

    model: Annotated[Unset[Path], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL]")] = None
    """The folder that `gatedjax train` wrote. It needs --file."""
    workdir: Unset[Path] = None
    """The work folder of a run of GA-Net. The test set of the run is read."""
    toy: Flag = False
    """Measure gates in classic problems, which need no data."""
    preset: Unset[str] = None
    """The data set that the run must have been trained on."""
    manual_dir: Unset[str] = None
    """The folder with the raw files of the data set of the run."""
    data_dir: Unset[str] = None
    """The folder with the prepared data set of the run."""
    file: Unset[str] = None
    """Labelled texts for MODEL, as `gatedjax evaluate` reads them."""
    text: Unset[str] = None
    """The column of the texts in --file (default: text)."""
    label: Unset[str] = None
    """The column of the labels in --file (default: label)."""
    encoding: Unset[str] = None
    """The encoding of --file (default: utf-8)."""
    longest: int = 20
    """The most words that a text may have. Longer texts are left out."""
    samples: Annotated[int, at_least(2, MOST_DRAWS)] = 100
    """The number of draws behind the sampled mean."""
    tau: Annotated[Unset[float], POSITIVE] = None
    """The temperature of relaxed gates (default: that of the model)."""
    texts: Annotated[int, at_least(1, MOST_DRAWS)] = 32
    """The number of texts at which estimators are measured."""
    draws: Annotated[Unset[int], at_least(2, MOST_DRAWS)] = None
    """The number of gradients per text and estimator (default: 1,024; with --toy 16,384)."""
    seed: Annotated[int, at_least(0, MOST_SEED)] = 0
    """The seed of all draws."""
    out: Unset[Path] = None
    """The folder for gates_report.json, .png and .svg (default: the work folder, else
    gates-report)."""


def _check(options: Report) -> None:
    """Raises ValueError for options that do not go together."""
    count = (options.model is not None) + (options.workdir is not None) + options.toy
    if count != 1:
        raise ValueError(
            f"exactly one of MODEL, --workdir and --toy must be given, got {count} of them"
        )
    if options.toy:
        _leave_out(options, (*_OF_RUN, *_OF_FILE, "tau"), "--toy")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise NotADirectoryError(f"--out must be a folder, got the file {options.out}")


def _leave_out(options: Report, names: Sequence[str], source: str) -> None:
    """Refuses options without an effect, because a user would believe that they had one."""
    for name in names:
        if (value := getattr(options, name)) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} must be left out for {source}, got {value}")


def _open_network(options: Report) -> tuple[Any, Path]:
    """Opens the network with its texts, which the options of the command name."""
    from gatedjax.text._gated import is_run, open_own, open_run

    (folder,) = filter(None, (options.model, options.workdir))
    if is_run(folder):
        _leave_out(options, _OF_FILE, f"the run {folder}")
        places = {"data_dir": options.data_dir, "manual_dir": options.manual_dir}
        network = open_run(folder, data=options.preset, **places)
        # A report belongs into the work folder of its run, but an exported model may be in a folder
        # that must not change.
        return network, folder if (folder / "checkpoints").is_dir() else _PLACE
    if options.workdir is not None:
        raise ValueError(
            f"--workdir must be the work folder of a run, got {folder}: give a model of gatedjax "
            "train without --workdir, and with --file"
        )
    _leave_out(options, _OF_RUN, f"{folder}, a model of gatedjax train")
    if options.file is None:
        raise ValueError(
            f"--file must be given for {folder}, got none: name a file of labelled texts"
        )
    columns = {n: v for n in _OF_FILE[1:] if (v := getattr(options, n)) is not None}
    return open_own(folder, options.file, **columns), _PLACE


def _study(network: Any, options: Report) -> Any:
    """Measures the gate modes for all texts, and the estimators for some of them."""
    import sys

    import jax

    from gatedjax.gates import Study
    from gatedjax.text.gate_modes import gate_modes, measure

    key = jax.random.key(options.seed)
    parts = network.model, network.params, network.batch
    say(f"{network.title}: {len(network.batch['lengths']):,} texts", file=sys.stderr)
    modes = gate_modes(
        *parts,
        draws=options.samples,
        temperature=options.tau,
        longest=options.longest,
        key=key,
    )
    count = sum(2 ** int(n) for n in modes.lengths)
    say(f"{count:,} patterns of the gates of {len(modes.rows):,} texts", file=sys.stderr)
    measured = measure(
        *parts,
        texts=options.texts,
        draws=options.draws or 1024,
        longest=options.longest,
        key=key,
        on_estimator=lambda name: say(f"measuring {name!r}", file=sys.stderr),
    )
    loss, accuracy = modes.one_draw
    exact = next(row for row in modes.table() if row.mode == "exact")
    left_out = (
        f"Left out of everything, with more than {modes.longest} words: {modes.left_out:,}."
        if modes.left_out
        else f"None has more than {modes.longest} words."
    )
    notes = [
        f"Gates: {len(modes.rows):,} texts. {left_out}",
        "One draw of the gates for each text, as papers test: accuracy "
        f"{exact.accuracy:.4f} +- {accuracy:.4f}, loss {exact.loss:.5f} +- {loss:.5f} (exact "
        "standard deviations).",
        f"Estimators: gradients of the logits of {measured.texts} texts, {measured.draws:,} draws "
        f"each; the exact gradient has the norm {measured.gradient:.3g} (root mean square).",
    ]
    if network.aside:
        notes.append(f"Lines that could not be used: {network.aside:,}.")
    facts = {"lines_aside": network.aside, "seed": options.seed, **modes.record()}
    return Study(network.title, modes.table(), measured, facts, tuple(notes))


def _write(studies: Sequence[Any], folder: Path, title: str | None) -> None:
    """Writes the JSON file and the figure, each atomically."""
    from gatedjax import analysis

    folder.mkdir(parents=True, exist_ok=True)
    content = to_json({"studies": [study.record() for study in studies]}, indent=1) + "\n"
    # The numbers are written before the picture, because Matplotlib may be missing and the
    # measurement takes long.
    write_atomic(folder / f"{_STEM}.json", content.encode())
    try:
        analysis.plot_studies(studies, folder / _STEM, title)
    except ImportError as error:
        say(f"wrote {folder / _STEM}.json; no figure: {error}")
        return
    say(f"wrote {folder / _STEM}.json, .png and .svg")


def _run(options: Report) -> None:
    _check(options)
    if options.toy:
        import jax

        from gatedjax import gates

        studies, folder, title = [], _PLACE, "Gates: classic problems"
        # Each study is printed when it is ready, because together they take minutes.
        for study in gates.toys(options.draws or 16_384, key=jax.random.key(options.seed)):
            say(study.markdown())
            studies.append(study)
    else:
        network, folder = _open_network(options)
        study = _study(network, options)
        say(study.markdown())
        studies, title = [study], None
    _write(studies, options.out or folder, title)


def main(args: list[str]) -> int:
    """Runs the command and returns 0; errors exit with status 2."""
    about = "Measures what gates do, and whether it can be trusted."
    options: Report = parse_command({"report": Report}, args, f"{program()} gates", about)
    # The quote of a name follows only in the message about the data set of a run.
    words = {"data must be '": "--preset must be '", "(manual_dir=...)": "(--manual-dir DIR)"}
    with refusals(words, Report):
        _run(options)
    return 0
