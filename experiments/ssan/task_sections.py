"""Tables 1, 6 and 7 and the figures, from records and from what the analyses wrote."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from experiments.core.collapse import COLLAPSED
from experiments.core.origins import beside, columns, substitute_of
from experiments.core.records import NOT_RUN, averaged, read_json
from experiments.core.comparison import ONE_SEED, compare, p_text, paragraphs
from experiments.ssan import paper
from experiments.ssan.analyses import ANALYSES, NORMS, figure_of
from experiments.ssan.bleu import bleu_of, f1_of, paired
from experiments.ssan.cells import NAMES, Records
from experiments.ssan.results import Store
from experiments.ssan.task_config import TASK_PRESETS
from experiments.ssan.variants import BASE, FULL
from gatedjax import analysis

_METRICS = {"nli": "accuracy", "srl": "F1", "mt_": "BLEU"}


def _percent(records: Records, data: str) -> str:
    def found(record: dict[str, Any]) -> float | None:
        if data.startswith("mt_"):
            return record.get("test_bleu")
        if data.startswith("srl"):
            roles = record.get("test_roles_greedy")
            return None if roles is None else 100 * roles["f1"]
        return 100 * record["test"]["accuracy"]

    return averaged(records, found, 2)


class Difference(NamedTuple):
    """SSAN minus SAN in points.

    Attributes:
      boots: of all seeds together (inference), or of every seed by itself.
      why_not: why there is no verdict; None if there is one.
    """

    boots: tuple[analysis.Bootstrap, ...]
    why_not: str | None

    def cells(self, p_values: Iterator[float]) -> list[str]:
        """Difference, 95 % interval and the next of these p-values."""
        if self.why_not == COLLAPSED:
            return ["-", "-", COLLAPSED]
        p = self.why_not or ", ".join(p_text(next(p_values)) for _ in self.boots)
        return [
            ", ".join(f"{boot.difference:+.2f}" for boot in self.boots),
            ", ".join(f"[{boot.low:+.2f}, {boot.high:+.2f}]" for boot in self.boots),
            p,
        ]


def difference(base: Records, full: Records, data: str) -> Difference | None:
    """Compares the seeds that both have; None without one."""
    if data.startswith("nli"):
        found = compare(full, base)
        if found is None:
            return None
        boot = found.bootstrap
        points = analysis.Bootstrap(
            100 * boot.difference, 100 * boot.low, 100 * boot.high, boot.p_value
        )
        return Difference((points,), found.why_not)
    key, score = ("role_counts", f1_of) if data.startswith("srl") else ("bleu_statistics", bleu_of)
    ours, theirs = ({r["seed"]: r for r in records if key in r} for records in (full, base))
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    boots = tuple(paired(ours[seed][key], theirs[seed][key], score) for seed in seeds)
    return Difference(boots, ONE_SEED if len(seeds) == 1 else None)


def table1(store: Store) -> str:
    """The four tasks without and with a selector in layer 1."""
    headers = ["task", "metric", "SAN, paper", "SSAN, paper", "SAN, ours", "SSAN, ours"]
    headers += ["difference", "95 % interval", "p"]
    rows, notes = [], []
    pairs = {data: [store.all(data, variant) for variant in (BASE, FULL)] for data in TASK_PRESETS}
    found = {data: difference(base, full, data) for data, (base, full) in pairs.items()}
    tested = [one for one in found.values() if one is not None and one.why_not is None]
    p_values = [boot.p_value for one in tested for boot in one.boots]
    corrected = iter(map(float, analysis.holm(p_values)))
    for data, (base, full) in pairs.items():
        metric, san, ssan = paper.TABLE1.get(data, (_METRICS[data[:3]], None, None))
        quoted = ["-" if value is None else f"{value:.2f}" for value in (san, ssan)]
        one = found[data]
        ours = [_percent(base, data), _percent(full, data)]
        ours += ["-"] * 3 if one is None else one.cells(corrected)
        for label, *cells in beside(NAMES[data], quoted, ours, [*base, *full]):
            rows.append([label, metric, *cells])
        for record in (*base, *full)[:1]:
            if record.get("substitute"):
                notes.append(f"- {NAMES[data]}: substitute: {substitute_of(record)}.")
            if "bleu_signature" in record:
                notes.append(f"- {NAMES[data]}: {record['bleu_signature']}")
    together = f"The p of this table are corrected together (Holm), {len(p_values)} in all."
    table = analysis.render_table(headers, rows)
    return paragraphs(table, "\n".join(notes), together if p_values else "")


def _written(store: Store, what: str) -> list[tuple[str, dict[str, Any]]]:
    """(data set, what the analysis wrote), by name."""
    paths = sorted((store.folder / "attention").glob(f"{what}-*.json"))
    return [(path.stem.removeprefix(f"{what}-"), read_json(path)) for path in paths]


def table6(store: Store) -> str:
    """Unlabelled brackets."""
    headers = ["attention of", "tree", "precision (%)", "recall (%)", "F1 (%)"]
    rows = [
        ["WMT14 En-De, paper", name, *(f"{paper.TABLE6[key][i]:.2f}" for key in paper.TABLE6)]
        for i, name in enumerate(("SAN", "SSAN"))
    ]
    notes = []
    for data, found in _written(store, "table6"):
        name = NAMES.get(data, data)
        for variant, title in ((BASE, "SAN"), (FULL, "SSAN, layer 1")):
            for norm in NORMS:
                scores = found[f"{variant}-{norm}"]
                rows.append([name, f"{title}, mass by {norm}", *_scores(scores)])
        for tree in ("left", "right", "balanced", "random"):
            rows.append([name, tree, *_scores(found[tree])])
        notes.append(f"- {name}: {found['sentences']:,} sentences, {found['gold']}.")
    if not notes:
        return analysis.render_table(headers, [*rows, ["ours", NOT_RUN, "-", "-", "-"]])
    return "\n\n".join([analysis.render_table(headers, rows).rstrip(), "\n".join(notes)])


def _scores(values: list[float]) -> list[str]:
    return [f"{100 * value:.2f}" for value in values]


def table7(store: Store) -> str:
    """Attention by part of speech."""
    headers = ["class"]
    whose = {
        data: columns([*store.all(data, BASE), *store.all(data, FULL)])
        for data in (*paper.TABLE7_DATA, *(data for data, _ in _written(store, "table7")))
    }
    for data in paper.TABLE7_DATA:
        headers += [f"{NAMES[data]}, {whose[data][0]}: {name}" for name in ("SAN", "SSAN")]
    written = _written(store, "table7")
    for data, _ in written:
        of = NAMES.get(data, data) + whose[data][1].removeprefix("ours")
        headers += [f"{of}: {name}" for name in ("SAN", "SSAN", "change (%)")]
    rows = []
    for name, quoted in paper.TABLE7.items():
        row = [name, *(f"{value:.3f}" for pair in quoted for value in pair)]
        for _, found in written:
            san, ssan = found[BASE][name], found[FULL][name]
            change = f"{100 * (ssan - san) / san:+.1f}" if san else "-"
            row += [f"{san:.3f}", f"{ssan:.3f}", change]
        rows.append(row)
    notes = [f"- {NAMES.get(data, data)}: {found['note']}." for data, found in written]
    text = analysis.render_table(headers, rows)
    return "\n\n".join([text.rstrip(), "\n".join(notes) or f"Ours: {NOT_RUN}."])


def figures(store: Store) -> str:
    """Links to the figures, and the numbers of the distance curves at 1."""
    lines = []
    for what in (name for name in ANALYSES if name.startswith("figure")):
        written = _written(store, what)
        if not written:
            lines.append(f"- {what}: {NOT_RUN}.")
            continue
        for data, found in written:
            text = f"- [{what}]({figure_of(what, data)}.png): {NAMES.get(data, data)}"
            if BASE in found and "shares" in found[BASE]:
                ours = [100 * found[variant]["shares"][1] for variant in (BASE, FULL)]
                empty = 100 * found[FULL]["empty_rate"]
                text += (
                    f"; at distance 1 {ours[0]:.1f} % (SAN) and {ours[1]:.1f} % (SSAN), "
                    f"{empty:.1f} % of SSAN's queries without a key"
                )
            lines.append(text + ".")
    quoted = "The paper has {} % (SAN) and {} % (SSAN) at distance 1 on BShift."
    return "\n".join([*lines, "", quoted.format(*paper.DISTANCE_ONE)])
