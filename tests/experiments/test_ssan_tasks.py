"""Runs of inference, semantic roles and translation on tiny data, and what is made of them."""

import dataclasses
import io
import json

import numpy as np
import pytest

from experiments.core.config import with_changes
from experiments.core.records import write_json
from experiments.ssan import analyses, bleu, reported, tables, tasks
from experiments.ssan.__main__ import main
from experiments.ssan.config import PRESETS, SRLData, TranslationConfig
from experiments.ssan.experiment import experiment
from experiments.ssan.paper import PAPER
from gatedjax import data as gdata
from gatedjax.__main__ import main as gatedjax_main
from gatedjax.analysis._scores import corpus_bleu
from gatedjax.text.models._translator import SearchConfig
from tests.data._same import predicate_row
from tests.data.test_sentence_sets import HEADER, conll

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NOUNS = {"dog": "Hund", "cat": "Kater", "man": "Mann", "bird": "Vogel", "boy": "Junge"}
VERBS = {"runs": "rennt", "sleeps": "schläft", "sits": "sitzt", "sings": "singt"}


@pytest.fixture
def raw(tmp_path):
    """Every pair of a noun and a verb, as pairs of languages, of sentences, and with roles."""
    folder = tmp_path / "raw"
    for name in ("multi30k", "sick", "srl", "treebank"):
        (folder / name).mkdir(parents=True)
    pairs = [(n, v) for n in NOUNS for v in VERBS]
    english = [f"A {n} {v}." for n, v in pairs]
    german = [f"Ein {NOUNS[n]} {VERBS[v]}." for n, v in pairs]
    for part in ("train", "val", "test_2016_flickr"):
        for language, lines in (("en", english), ("de", german)):
            text = "\n".join(lines) + "\n"
            (folder / "multi30k" / f"{part}.{language}").write_text(text, "utf-8")
    sick = [HEADER]
    for number, (n, v) in enumerate(pairs):
        label = ("ENTAILMENT", "CONTRADICTION")[number % 2]
        second = f"A {n} {v}" if number % 2 == 0 else f"No {n} {v}"
        sick.append(f"{number}\tA {n} {v}\t{second}\t3\t{label}")
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        (folder / "sick" / f"{name}.txt").write_text("\n".join(sick) + "\n", "utf-8")
    blocks = [
        [
            predicate_row(0, "A", "(ARG0*"),
            predicate_row(1, n, "*)"),
            predicate_row(2, v, "(V*)", lemma=v),
        ]
        for n, v in pairs
    ]
    for part in ("train", "dev", "test"):
        (folder / "srl" / f"conll2012.{part}.conll").write_text(conll(*blocks), "utf-8")
        trees = [
            f"(TOP (S (NP (DT A) (JJ big) (NN {n})) (VP (VBZ {v}) (PP (IN in) (NP (DT the) "
            f"(NN house)))) (. .)))"
            for n, v in pairs[:3]
        ]
        (folder / "treebank" / f"ewt.{part}.trees").write_text("\n".join(trees) + "\n", "utf-8")
    return folder


SMALL = [
    "--model.num-layers", "1", "--model.filter-size", "16", "--model.num-heads", "2",
    "--cpu-devices", "1", "--train.no-progress",
]  # fmt: skip


def run(raw, workdir, preset, *args):
    steps = ["--train.num-steps", "2", "--train.eval-every", "2", "--train.checkpoint-every", "1"]
    given = ["--preset", preset, "--workdir", str(workdir), "--data.manual-dir", str(raw)]
    status = main([*given, *steps, "--train.optimizer.warmup-steps", "0", *args])
    assert status == 0
    return json.loads((workdir / "results.json").read_text("utf-8"))


@pytest.mark.slow
def test_inference_is_trained_and_scored(raw, tmp_path):
    record = run(
        raw, tmp_path / "w", "nli_sick", "--model.hidden", "8", "--model.embedding-dim", "6",
        "--cpu-devices", "1", "--train.no-progress",
    )  # fmt: skip
    assert record["class_names"] == ["entailment", "neutral", "contradiction"]
    assert "where the paper has SNLI" in record["substitute"]
    assert record["origin"].endswith("where the paper has SNLI with 550,000")
    assert sum(record["predicted_classes"]) == 20
    assert record["label_entropy"] > 0
    assert len(record["test_digest"]) == 16
    assert len(record["correct"]) == record["test_n"] == 20
    assert set(record["selected_heads"]) == {"1"}


@pytest.mark.slow
def test_roles_are_trained_and_scored_by_arguments(raw, tmp_path):
    record = run(
        raw, tmp_path / "w", "srl", "--model.embedding-dim", "4", "--model.hidden", "8", *SMALL
    )
    assert record["labels"] == 5  # O, B-ARG0, I-ARG0, B-V, I-V
    assert np.array(record["role_counts"]).shape == (20, 3)
    assert sum(gold for *_, gold in record["role_counts"]) == 20
    for way in ("greedy", "constrained"):
        assert 0 <= record[f"test_roles_{way}"]["f1"] <= 1
    assert record["substitute"].startswith("20 sentences where the official file has 9,479")


def test_word_vectors_of_a_file_are_scaled_as_a_whole(raw, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("dog 1 2 3 4\ncat -1 0 2 5\nruns 3 1 0 0\n")
    data = SRLData(manual_dir=str(raw), embeddings=str(file))
    (read, _), (other, _) = (
        tasks.predicates(dataclasses.replace(data, vector_std=std), 4) for std in (None, 0.1)
    )
    words = read.vocabulary.encode(["dog", "cat", "runs"])
    plain, scaled = read.embeddings, other.embeddings
    np.testing.assert_array_equal(plain[words[0]], [1, 2, 3, 4])
    np.testing.assert_allclose(scaled[words].std(), 0.1, rtol=1e-6)
    np.testing.assert_allclose(scaled, plain * (0.1 / plain[words].std()), rtol=1e-6)


def test_roles_are_compared_by_arguments_in_table_1(tmp_path):
    store = PAPER.store(tmp_path)
    for variant, matched in (("san", 1), ("ssan_layer1", 2)):
        counts = [[matched, 2, 2]] * 30  # an F1 of one half for san, of one for ssan
        scores = {"f1": matched / 2}
        record = {"role_counts": counts, "test_roles_greedy": scores, "substitute": "a treebank"}
        for seed in range(3):
            more = {"config": {}, "seed": seed}
            write_json(store.path("srl", variant, seed), dict.fromkeys(store.keys) | record | more)
    text = PAPER.tables["table1"].text(PAPER, store)
    (row,) = (line for line in text.splitlines() if "100.00" in line)
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[1] == "F1"
    ours = ["50.00 ± 0.00 (n=3)", "100.00 ± 0.00 (n=3)"]
    assert cells[4:8] == [*ours, "-", "-"]  # no roles of the last step
    assert cells[8:] == ["+50.00", "[+50.00, +50.00]", "<0.001"]
    assert f"- {cells[0].removesuffix(', other data')}: substitute: a treebank." in text


def multi30k(folder, **parts):
    """So many pairs of every part, of six words each."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in parts.items():
        for language in ("en", "de"):
            lines = (f"a man {language} walks there {i % 9} .\n" for i in range(count))
            (folder / f"{part}.{language}").write_text("".join(lines), "utf-8")


def substitute_of(raw, preset, **changes):
    """What the run of a preset says of the files in a folder."""
    config = with_changes(PRESETS[preset], {"data.manual_dir": str(raw), **changes})
    return experiment(config).substitute


@pytest.mark.slow
def test_a_short_training_part_is_said_beside_whole_test_parts(raw):
    multi30k(raw / "multi30k", train=60, val=1014, test_2016_flickr=1000)
    captions = "60 lines where the official file has 29,000"
    assert substitute_of(raw, "mt_multi30k_small") == captions
    words = reported.REORDERING_SUBSTITUTES["multi30k"]
    assert substitute_of(raw, "wrd_small") == f"{words}; {captions}"


def test_what_the_files_are_is_said_of_moved_words_too(raw):
    multi30k(raw / "multi30k", train=20, val=20, test_2016_flickr=20)
    plain = substitute_of(raw, "wrd_small")
    assert plain.startswith(f"{reported.REORDERING_SUBSTITUTES['multi30k']}; 20 lines where")
    assert substitute_of(raw, "wrd_small", **{"data.note": "mine"}) == f"mine; {plain}"


# with so many pieces every word is one, and all sentences are of one length: one program each
MT = ["--model.hidden", "8", "--model.decoder-layers", "1", "--data.vocabulary-size", "100",
      "--search.average", "2", "--search.extra", "4", *SMALL]  # fmt: skip


@pytest.mark.slow
def test_a_translator_is_trained_translates_and_shows_its_attention(
    raw, tmp_path, capsys, monkeypatch
):
    pytest.importorskip("tokenizers")
    pytest.importorskip("sacrebleu")
    runs, results = tmp_path / "runs", tmp_path / "results"
    # the selector is the only thing that a standard network cannot give
    begin = ["--init-from", str(runs / "mt_multi30k-san-seed0")]
    for variant, layers, more in (("san", "0", []), ("ssan_layer1", "1", begin)):
        workdir = runs / f"mt_multi30k-{variant}-seed0"
        record = run(raw, workdir, "mt_multi30k", "--model.gates.select-layers", layers, *more, *MT)
        assert record["averaged_steps"] == [1, 2]
        assert len(record["bleu_statistics"]) == 20
        assert bleu.bleu_of(np.sum(record["bleu_statistics"], axis=0)) == pytest.approx(
            record["test_bleu"], abs=1e-3
        )
        assert record["bleu_signature"].startswith("nrefs:1|case:mixed")
    assert record["init_from"]["run"] == "mt_multi30k-san-seed0"
    assert record["init_from"]["not_loaded"]
    assert all("selector_" in line for line in record["init_from"]["not_loaded"])
    # a vocabulary is never written over
    with pytest.raises(SystemExit):
        run(raw, workdir, "mt_multi30k", *MT, "--data.vocabulary-size", "50")
    assert "the vocabulary of another run" in capsys.readouterr().err

    # a line in, a line out; an empty one stays empty, and CRLF is no part of a line
    def translate(text, folder, *options):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        args = ["translate", str(folder), "--beam-size", "2", *options]
        return gatedjax_main(args), capsys.readouterr()

    references = tmp_path / "references"
    references.write_text("Ein Hund rennt.\nx\nEin Kater sitzt.\n", "utf-8")
    given = "A dog runs.\r\n\nA cat sits.\n"
    capsys.readouterr()
    status, shown = translate(given, workdir, "--references", str(references))
    lines = shown.out.split("\n")
    assert status == 0
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    assert "BLEU" in shown.err
    # the export of the run translates alike
    export = tmp_path / "export"
    assert gatedjax_main(["export", str(workdir), "--out", str(export)]) == 0
    capsys.readouterr()
    assert translate("A dog runs.\n", export)[1].out == lines[0] + "\n"

    sizes = {"num_layers": 1, "decoder_layers": 1, "hidden": 8, "filter_size": 16, "num_heads": 2}
    preset = with_changes(PRESETS["mt_multi30k"], {f"model.{name}": n for name, n in sizes.items()})
    monkeypatch.setitem(PRESETS, "mt_multi30k", preset)
    # three commands look into the same two networks
    load, opened = analyses.load_encoders, {}
    monkeypatch.setattr(
        analyses,
        "load_encoders",
        lambda job, data: opened or opened.update(load(job, data)) or opened,
    )
    common = ["--manual-dir", str(raw), "--runs", str(runs), "--results", str(results)]
    for what in ("table6", "table7", "figure6"):
        assert tables.main([what, *common, "--data", "mt_multi30k", "--cpu-devices", "1"]) == 0
    found = json.loads((results / "attention" / "table6-mt_multi30k.json").read_text("utf-8"))
    assert found["sentences"] == 3
    assert found["right"][1] > found["left"][1]  # English branches to the right
    shares = json.loads((results / "attention" / "table7-mt_multi30k.json").read_text("utf-8"))
    assert sum(shares["san"][k] for k in ("Content", "Content-free")) == pytest.approx(1, abs=1e-5)
    assert (results / "figure6.svg").exists()
    page = (results / "RESULTS.md").read_text("utf-8")
    assert "Table 6: brackets of trees" in page
    assert "Multi30k En-De: 3 sentences, gold trees" in page
    assert "figure2: not run" in page


def test_bleu_of_sums_is_that_of_the_corpus():
    pytest.importorskip("sacrebleu")
    found = ["the cat sat on the mat .", "a dog runs in the park", "no"]
    truth = ["the cat sat on a mat .", "a dog is running in the park", "yes"]
    scored = corpus_bleu(found, truth)
    assert bleu.bleu_of(np.sum(scored.statistics, axis=0)) == pytest.approx(scored.score)
    assert 0 < scored.score < 100
    assert corpus_bleu(truth, truth).score == pytest.approx(100)
    with pytest.raises(ValueError, match="the same length of at least 1, got 2 and 3"):
        corpus_bleu(found[:2], truth)


def test_paired_tests_see_a_difference_and_none_where_there_is_none(np_rng):
    gold = np_rng.integers(1, 5, 300)
    good = [[g, g, g] for g in gold]
    bad = [[g // 2, g, g] for g in gold]

    def made(counts):
        rows = [list(map(int, row)) for row in counts]
        return [{"seed": seed, "role_counts": rows} for seed in (0, 1, 2)]

    found = bleu.difference(made(bad), made(good), "F1")
    gap = (bleu.f1_of(np.sum(good, 0)) - bleu.f1_of(np.sum(bad, 0))) / 100
    assert found.by_seed == pytest.approx((gap,) * 3)
    assert 0 < found.test.low < gap < found.test.high
    assert found.test.p_value < 0.02
    assert found.why_not is None
    # seeds without a spread leave the variance over examples, that of the resampled scores
    shifts = bleu.resample(np.array(good), np.array(bad), bleu.f1_of)
    assert found.test.standard_error == pytest.approx(shifts.std(ddof=1) / 100)
    same = bleu.difference(made(good), made(good), "F1")
    assert (same.difference, same.test.p_value) == (0.0, 1.0)
    single = bleu.difference(made(bad)[:1], made(good)[:1], "F1")
    assert single.cells(seeds=False)[:3] == [f"{100 * gap:+.2f}", "-", "these runs (n=1)"]
    with pytest.raises(ValueError, match="the same examples"):
        bleu.difference(made(bad[:-1]), made(good), "F1")


def test_a_label_outside_the_set_is_refused_in_training_and_wrong_elsewhere():
    info = gdata.SourceInfo("x", "train", ("predicate",))
    source = gdata.Source(
        [{"spans": ((0, 1, "V"), (1, 3, "ARG1"))}, {"spans": ((0, 1, "V"),)}], info
    )
    names = tasks.label_names(source)
    assert names == ("O", "B-ARG1", "I-ARG1", "B-V", "I-V")
    assert tasks.encode_labels(["B-V", "O", "I-ARG1"], names, strict=True).tolist() == [3, 0, 2]
    assert tasks.encode_labels(["B-ARG9"], names, strict=False).tolist() == [tasks.UNKNOWN]
    with pytest.raises(ValueError, match="among the 5 labels of training, got 'B-ARG9'"):
        tasks.encode_labels(["B-ARG9"], names, strict=True)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SRLData(vector_std=0.0), "vector_std must be positive and finite, got 0.0"),
        (
            lambda: TranslationConfig(search=SearchConfig(average=3)),
            "search.average must be at most train.keep_checkpoints=2, got 3",
        ),
    ],
)
def test_settings_that_no_run_could_use_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.slow
def test_data_that_are_not_there_are_named(tmp_path, capsys):
    for preset in ("mt_en_ja", "srl", "nli"):
        args = ["--preset", preset, "--data.manual-dir", str(tmp_path), "--workdir", str(tmp_path)]
        with pytest.raises(SystemExit):
            main(args)
        assert "in manual_dir" in capsys.readouterr().err
