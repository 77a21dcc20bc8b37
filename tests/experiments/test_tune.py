"""The search for settings of GA-Net and AGT, and the table that uses the settings it chose."""

import json
from types import SimpleNamespace

import pytest

from experiments.agt import tables
from experiments.agt import tune as agt_tune
from experiments.agt.paper import PAPER, VARIANTS
from experiments.agt.tune import TuneConfig, trials
from experiments.core import tune
from experiments.core.command import options_of
from experiments.core.paper import Job
from experiments.core.records import write_json
from experiments.ga_net import tune as ga_net_tune
from tests.conftest import ROOT
from tests.experiments._commands import refused

POLARITY = ["--data", "polarity", "--learning-rates", "1e-3", "4e-3", "--num-steps", "20"]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "v.3d.txt"
    path.write_text("the 0.5 1 -1e-3\nfilm 1 2 3\n", encoding="utf-8")
    return path


@pytest.fixture
def made(monkeypatch):
    """The configurations of the trials that a command makes, without training."""
    configs = []

    def run_of(paper, config, *, test):
        assert not test
        configs.append(config)
        rate = config.train.optimizer.learning_rate
        best = {"loss": round(0.5 + rate, 4), "accuracy": 0.75, "density": None}
        fit = SimpleNamespace(stopped="max_steps", exit_code=0, best_metrics=best, best_step=20)
        return SimpleNamespace(fit=fit)

    monkeypatch.setattr(tune, "run_of", run_of)
    return configs


def folders(tmp_path):
    return ["--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]


def write_trials(tmp_path, *systems, **entries):
    """A tuning.json in which the second trial of each system is the better one."""
    values = [(1e-4, 0.2, 1.5), (7e-4, 0.5, 1.25), (2e-4, 0.5, 1.75)]
    trial = {"data": "sst1", "embeddings": "v.3d.txt", "seed": 0, "num_steps": 20, **entries}
    records = [
        {**trial, "system": name, "values": {"learning rate": rate, "dropout": dropout}}
        | {"loss": loss, "accuracy": 0.5, "best_step": 20}
        for name in systems
        for rate, dropout, loss in values
    ]
    by_accuracy = [{k: v for k, v in record.items() if k != "loss"} for record in records]
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps(by_accuracy + records), encoding="utf-8")
    return path


def ablation_job(tmp_path, vectors, **options):
    folder = {"results": tmp_path / "r", "runs": tmp_path / "w"}
    options = {"data": ("sst1",), "embeddings": str(vectors), **folder, **options}
    return Job(PAPER, options_of(PAPER)(what="ablation", **options))


def test_a_trial_is_a_row_of_the_ablation_with_other_values(vectors):
    options = TuneConfig(
        data="sst1", system="agt_above2", learning_rates=(1e-4, 5e-4), dropouts=(0.2, 0.5),
        embeddings=str(vectors), seed=3,
    )  # fmt: skip
    listed = trials(options)
    assert [list(trial.key["values"].values()) for trial in listed] == [
        [1e-4, 0.2], [1e-4, 0.5], [5e-4, 0.2], [5e-4, 0.5]
    ]  # fmt: skip
    config = listed[1].config
    assert (config.model.ablate_above, config.model.embedding_dim) == (2, 3)
    assert (config.train.optimizer.learning_rate, config.model.dropout) == (1e-4, 0.5)
    assert config.train.seed == 3
    assert listed[1].by_loss
    assert listed[1].folder == "sst1-agt_above2-0.0001-0.5-v.3d.txt-3-30000"
    assert len({trial.folder for trial in listed}) == 4


def test_a_system_without_values_is_that_of_the_tables(tmp_path, vectors):
    job = ablation_job(tmp_path, vectors)
    for name in ("agt", "agt_above0", "agt_above2", "average"):
        (trial,) = trials(TuneConfig(data="sst1", system=name, embeddings=str(vectors)))
        assert trial.config == job.config("sst1", name, 0)


def test_a_search_leaves_a_record_and_repeats_no_trial(tmp_path, made, capsys):
    args = [*POLARITY, "--system", "average", *folders(tmp_path)]
    assert agt_tune.main(args) == 0
    assert [config.train.optimizer.learning_rate for config in made] == [1e-3, 4e-3]
    assert made[0].workdir == str(tmp_path / "w" / "polarity-average-0.001-0.1-none-0-20")
    records = json.loads((tmp_path / "r" / "tuning.json").read_text(encoding="utf-8"))
    assert records[0] == {
        "data": "polarity", "system": "average", "embeddings": "none", "seed": 0, "num_steps": 20,
        "values": {"learning rate": 1e-3, "dropout": 0.1},
        "loss": 0.501, "accuracy": 0.75, "best_step": 20,
    }  # fmt: skip
    page = (tmp_path / "r" / "TUNING.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    assert ["polarity", "average", "0.001", "0.1", "none", "0", "20", "20", "0.5010", "0.7500"] in (
        rows
    )
    assert agt_tune.main(args) == 0
    assert len(made) == 2
    # A shorter trial and one with another seed are other trials.
    assert agt_tune.main([*args, "--seed", "1"]) == 0
    assert agt_tune.main([*args, "--num-steps", "10"]) == 0
    assert len(made) == 6


def test_a_search_keeps_the_trials_of_another_search_beside_it(tmp_path, made, monkeypatch):
    args = ["--data", "polarity", "--num-steps", "20", *folders(tmp_path), "--system"]
    run_of = tune.run_of

    def beside(paper, config, *, test):
        if config.model.system == "agt":
            assert agt_tune.main([*args, "average"]) == 0
        return run_of(paper, config, test=test)

    monkeypatch.setattr(tune, "run_of", beside)
    assert agt_tune.main([*args, "agt"]) == 0
    records = json.loads((tmp_path / "r" / "tuning.json").read_text(encoding="utf-8"))
    assert [record["system"] for record in records] == ["average", "agt"]
    assert agt_tune.main([*args, "average"]) == 0
    assert len(made) == 2


def test_other_word_vectors_are_another_trial(tmp_path, vectors, made):
    args = ["--data", "sst1", *folders(tmp_path), "--embeddings"]
    other = vectors.with_name("other.txt")
    other.write_bytes(vectors.read_bytes())
    for path in (vectors, other, vectors):
        assert agt_tune.main([*args, str(path)]) == 0
    assert [config.data.embeddings for config in made] == [str(vectors), str(other)]
    assert made[0].workdir != made[1].workdir
    assert str(tmp_path) not in (tmp_path / "r" / "tuning.json").read_text(encoding="utf-8")


# The exit status is 130 after Ctrl-C and 0 after SIGTERM.
@pytest.mark.parametrize("status", [130, 0])
def test_a_signal_ends_the_search_with_its_status(tmp_path, monkeypatch, capsys, status):
    fit = SimpleNamespace(stopped="signal", exit_code=status)
    monkeypatch.setattr(tune, "run_of", lambda *args, **options: SimpleNamespace(fit=fit))
    assert agt_tune.main([*POLARITY, *folders(tmp_path)]) == status
    assert "the same command continues" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_the_search_of_ga_net_varies_the_gates_only_of_ga_net(tmp_path, made):
    args = [*POLARITY, "--temperatures", "0.5", *folders(tmp_path)]
    for system in ("ganet", "soft"):
        assert ga_net_tune.main([*args, "--system", system]) == 0
    assert ga_net_tune.main(["--data", "imdb", "--system", "soft", *folders(tmp_path)]) == 0
    path = tmp_path / "r" / "tuning.json"
    records = json.loads(path.read_text(encoding="utf-8"))
    assert [len(record["values"]) for record in records[:5]] == [5, 5, 3, 3, 3]
    # that of IMDB chooses by accuracy, and such a trial is none that is chosen by loss
    assert ["loss" in record for record in records[:5]] == [True] * 4 + [False]
    write_json(path, [{k: v for k, v in one.items() if k != "loss"} for one in records[2:3]])
    assert ga_net_tune.main([*args, "--system", "soft"]) == 0
    assert json.loads(path.read_text(encoding="utf-8"))[1:] == records[2:4]
    assert made[0].workdir == str(tmp_path / "w" / "polarity-ganet-0.001-32-0.1-0.5-0.001-0-20")


def test_the_page_of_ga_nets_search_is_rendered_from_its_record_byte_for_byte():
    folder = ROOT / "experiments" / "results" / "ga_net"
    records = json.loads((folder / "tuning.json").read_text(encoding="utf-8"))
    assert ga_net_tune.SEARCH.page(records) == (folder / "TUNING.md").read_text(encoding="utf-8")


def test_the_ablation_takes_the_best_trial_of_each_system(tmp_path, vectors):
    names = ["agt", "agt_above0", "agt_above2", "average"]
    cells = list(ablation_job(tmp_path, vectors, tuning=write_trials(tmp_path, *names)).cells())
    assert [cell.variant for cell in cells] == names
    usual = list(ablation_job(tmp_path, vectors).cells())
    for cell, cell_of_preset in zip(cells, usual, strict=True):
        config = cell.configs[0]
        assert (config.train.optimizer.learning_rate, config.model.dropout) == (7e-4, 0.5)
        expected = cell_of_preset.configs[0]
        assert config.model.ablate_above == expected.model.ablate_above
        assert config.model.system == expected.model.system
        assert config != expected
    assert all(not VARIANTS[name].tuned for name in names)


@pytest.mark.parametrize(
    "entries", [{"embeddings": "other.txt"}, {"data": "sst2"}], ids=["vectors", "data"]
)
def test_a_file_without_a_trial_of_a_system_is_refused_by_name(tmp_path, vectors, entries, capsys):
    path = write_trials(tmp_path, "agt", **entries)
    args = ["ablation", "--tuning", str(path), "--embeddings", str(vectors), *folders(tmp_path)]
    message = refused(tables.main, args, capsys)
    assert "must have a trial of agt on sst1 with the word vectors v.3d.txt, got none" in message
    path = write_trials(tmp_path, "agt", "agt_above0")
    assert "experiments.agt.tune --data sst1 --system agt_above2" in refused(
        tables.main, args, capsys
    )
    assert not (tmp_path / "r").exists()


def test_only_the_ablation_uses_a_search(tmp_path, capsys):
    args = ["table1", "--tuning", "tuning.json", *folders(tmp_path)]
    assert "--tuning is an option of ablation" in refused(tables.main, args, capsys)


def test_the_page_of_a_folder_names_its_search(tmp_path):
    def search():
        (line,) = PAPER.conditions(PAPER.store(tmp_path)).splitlines()
        return line

    presets = "the trials behind the presets (moving average, learning rates, word vectors) have no"
    assert search() == f"- Search for settings: {presets} record."
    trials = [("sst1", "agt"), ("sst1", "agt"), ("sst1", "average"), ("trec", "agt")]
    records = [{"data": data, "system": system, "loss": 1.0} for data, system in trials]
    # a trial that was chosen by accuracy has no loss, and no settings come from it
    write_json(tmp_path / "tuning.json", [*records, {"data": "sst2", "system": "agt"}])
    assert search() == (
        "- Search for settings: 1 trial of each system on TREC (`TUNING.md` in this folder); "
        f"1 to 2 trials of each system on SST-1 (`TUNING.md` in this folder); {presets} record."
    )
