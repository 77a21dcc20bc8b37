"""Names and options of earlier versions, with their replacements."""

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gatedjax._utils.deprecation import warn_deprecated

Kind = TypeVar("Kind", bound=type)


def _internal_names(module: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"it is in {module}")


def _paper_names(module: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"only one paper uses it, and it is in {module}")


def _returned_classes(module: str, **functions: str) -> dict[str, str]:
    return {
        name: f"{function} returns it; for annotations it is in {module}"
        for name, function in functions.items()
    }


_COUNTS = (
    "gatedjax.analysis.distance_counts and experiments.ssan.tags.tag_counts sum weights by "
    "distance and by class of word"
)
_DENSITY = "density returns the shares; add the sums of gates and lengths of parts yourself"
_LAZY_ROWS = (
    "every optimizer updates all word vectors. With 20,000 words, lazy rows saved 9 % of a step of "
    "`gatedjax train` for texts of 24 words, and made it 17 % longer for texts of 200 words"
)
# package -> name -> the reason for the removal, or the replacement
REMOVED: dict[str, dict[str, str]] = {
    "gatedjax.analysis": {
        "DensityCounts": _DENSITY,
        "density_ratios": _DENSITY,
        "attention_flops_total": "pass the sum of the counts to attention_flops",
        "word_of_piece": "number the words of the pieces yourself, from 0",
    }
    | _paper_names("experiments.ssan.roles", "RoleCounts", "RoleScores", "role_counts")
    | _paper_names("experiments.ssan.roles", "constrained_labels")
    | _paper_names("experiments.ssan.tags", "TAG_CLASSES", "TagCounts", "tag_class", "tag_counts")
    | _paper_names("experiments.ssan.attention", "merge_pieces")
    | _paper_names("experiments.ssan.groups", "group_scores")
    | _paper_names("experiments.rau.images", "plot_images")
    | _internal_names("gatedjax.analysis._faithfulness", "SHARES")
    | _internal_names("gatedjax.analysis._flops", "bilstm_flops")
    | _internal_names("gatedjax.analysis._roar", "mask_top")
    | _returned_classes("gatedjax.analysis._attention_mass", DistanceCounts="distance_counts")
    | _returned_classes(
        "gatedjax.analysis._faithfulness",
        Comparison="faithfulness",
        Faithfulness="faithfulness",
        Rationale="faithfulness",
    )
    | _returned_classes("gatedjax.analysis._flops", FlopsReport="flops_report")
    | _returned_classes("gatedjax.analysis._gates", Density="density", TruthScores="gate_truth")
    | _returned_classes("gatedjax.analysis._roar", Racu="racu")
    | _returned_classes("gatedjax.analysis._scores", ClassScores="class_scores")
    | _returned_classes(
        "gatedjax.analysis._significance",
        McNemar="mcnemar",
        Proportion="proportion_test",
        Summary="summary",
    ),
    "gatedjax.analysis.phrases": _returned_classes(
        "gatedjax.analysis._phrases", Runs="runs", Selection="trace"
    )
    | _returned_classes(
        "gatedjax.analysis._phrase_statistics",
        GateHistogram="gate_histogram",
        LayerHistogram="weight_histogram",
    ),
    "gatedjax.analysis.trees": _returned_classes(
        "gatedjax.analysis._brackets",
        BracketCounts="bracket_counts",
        BracketScores="bracket_scores",
    ),
    "gatedjax.data": {
        "load_parallel": (
            "load reads parallel corpora out of manual_dir, and Source takes pairs of your own"
        )
    }
    | _paper_names("experiments.ga_net.statistics", "DatasetStatistics", "dataset_statistics")
    | _paper_names("experiments.ssan.sentences", "restore_word")
    | _internal_names("gatedjax.data.sets._reordering", "move_word")
    | _internal_names("gatedjax.data.sets._split", "stratified_split")
    | _returned_classes(
        "gatedjax.data.files._source",
        Quarantined="Source.quarantine",
        ReadReport="Source.report",
        SpanCounts="Source.report.spans",
    )
    | _returned_classes("gatedjax.data.batches._steps", WithStep="for_schedule"),
    "gatedjax.export": _returned_classes("gatedjax.export._inference", Inference="load_inference"),
    "gatedjax.functional": {
        "AttentionStatistics": _COUNTS,
        "attention_statistics": _COUNTS,
        "streamed_attention_statistics": _COUNTS,
        "skipping_selective_attention": (
            "selective_attention gives the same outputs. Skipping keys cost 9 to 15 times as much "
            "on a GPU and saved time only on a CPU, from 1,024 tokens on"
        ),
        "pair_dropout": "byte_dropout takes the bytes that pair_bytes draws",
    }
    | _returned_classes("gatedjax.functional._compact", CompactPool="compact_attention_pool")
    | _returned_classes(
        "gatedjax.functional._selector", SelectionStatistics="selection_statistics"
    ),
    "gatedjax.gates": _returned_classes("gatedjax.gates._enumerate", Truth="enumerate")
    | _returned_classes("gatedjax.gates._study", ModeRow="gate_modes")
    | _returned_classes("gatedjax.text.gate_modes", GateModes="gate_modes", ModeValues="gate_modes")
    | _returned_classes("gatedjax.gates._report", Measure="measure", Measured="measure")
    | _returned_classes("gatedjax.gates._report", Report="report", Row="report"),
    "gatedjax.models.ga_net": {"GANetTask": "import it from gatedjax.models"},
    "gatedjax.models": {
        f"ssan_{name}": f"gatedjax.models.ssan.{name} has its contents"
        for name in ("nli", "probe", "reordering", "tagger", "translation")
    }
    | _internal_names("gatedjax.models._cloze", "ClozeTask")
    | _returned_classes("gatedjax.models.agt", AGTOutput="AGT")
    | _returned_classes("gatedjax.models.ga_net", GANetOutput="GANet")
    | _returned_classes("gatedjax.models.ga_reader", GAReaderOutput="GAReader")
    | _returned_classes("gatedjax.models.rau", RAUOutput="RAUClassifier")
    | _returned_classes("gatedjax.models.rau_language", RAULanguageOutput="RAULanguageModel")
    | _returned_classes("gatedjax.models.ssan.encoder", SSANEncoderOutput="SSANEncoder")
    | _returned_classes("gatedjax.models.ssan.nli", SSANNLIOutput="SSANNLI")
    | _returned_classes("gatedjax.models.ssan.probe", SSANOutput="SSANProbe")
    | _returned_classes(
        "gatedjax.models.ssan.reordering", WordReorderingOutput="WordReorderingDetector"
    )
    | _returned_classes("gatedjax.models.ssan.tagger", SSANTaggerOutput="SSANTagger")
    | _returned_classes("gatedjax.models.ssan.translation", SSANTranslatorOutput="SSANTranslator")
    | _returned_classes("gatedjax.models.transformer.search", Found="beam_search"),
    "gatedjax.nn": _returned_classes("gatedjax.nn._hop", HopOutput="GatedAttentionHop"),
    "gatedjax.training": _internal_names("gatedjax.training.parallel", "pad_rows")
    | _returned_classes("gatedjax.training.lanes", Lane="lanes_of")
    | {
        "LazyRows": _LAZY_ROWS,
        "lazy_rows": _LAZY_ROWS,
        "table_lookups": "it served lazy_rows; a task needs no attribute `lookups`",
    },
}
# package -> former name -> the present name, which the package has in its place
RENAMED = {"gatedjax.training": {"load_params": "restore_params"}}
# package -> name -> the module that defines it, for names that are public in both
MOVED = {"gatedjax.gates": dict.fromkeys(("gate_modes", "measure"), "gatedjax.text.gate_modes")}

# dataclass -> field -> (its default, the reason for the removal)
REMOVED_FIELDS: dict[str, dict[str, tuple[object, str]]] = {
    "OptimizerConfig": {"lazy_rows": (False, _LAZY_ROWS)}
}
# option of a command, which is a flag that was off by default -> the reason for the removal
_REMOVED_OPTIONS = {"--train.optimizer.lazy-rows": _LAZY_ROWS}


def without_removed_fields(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a dataclass without removed fields that have their default."""
    removed = REMOVED_FIELDS[kind]
    for name, (default, reason) in removed.items():
        if values.get(name, default) != default:
            raise ValueError(
                f"{name} of {kind} must be left out since 0.1.0, got {values[name]!r}: {reason}"
            )
    return {name: value for name, value in values.items() if name not in removed}


def accepts_removed_fields(kind: Kind) -> Kind:
    """Makes a dataclass accept removed fields with their defaults, and explain other values."""
    init: Any = kind.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def take(self: Any, **values: Any) -> None:
        init(self, **without_removed_fields(kind.__name__, values))

    kind.__init__ = take  # type: ignore[misc]
    return kind


def explain_removed_option(args: Sequence[str]) -> str | None:
    """Returns a message if the command line `args` has a removed option; else None."""
    for arg in args:
        name = arg.partition("=")[0].replace("_", "-")
        if (reason := _REMOVED_OPTIONS.get(name)) is not None:
            return f"{name} was removed in 0.1.0: {reason}"
    return None


def without_removed_options(args: Sequence[str]) -> list[str]:
    """Returns a command line without options that switch off a removed flag, such as --no-NAME."""
    off = {".no-".join(name.rsplit(".", 1)) for name in _REMOVED_OPTIONS}
    return [arg for arg in args if arg.replace("_", "-") not in off]


def removed_from(package: str) -> Callable[[str], object]:
    """Returns the `__getattr__` of a package, for its removed and moved public names."""

    def explain(name: str) -> object:
        if (home := MOVED.get(package, {}).get(name)) is not None:
            return getattr(importlib.import_module(home), name)
        if (new := RENAMED.get(package, {}).get(name)) is not None:
            warn_deprecated(f"{package}.{name}", f"its name is {package}.{new}")
            return getattr(importlib.import_module(package), new)
        if (reason := REMOVED.get(package, {}).get(name)) is not None:
            raise ImportError(f"{package}.{name} was removed in 0.1.0: {reason}", name=name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return explain
