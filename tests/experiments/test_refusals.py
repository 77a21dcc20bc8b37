"""What the commands of all papers refuse: one line with status 2, before anything is trained."""

import importlib

import pytest

from experiments.__main__ import main
from experiments.benchmarks import compile, recurrence
from tests import refusals
from tests.experiments._commands import refused

# "PAPER OPTIONS" -> a part of the message of `python -m experiments.PAPER`; DIR is an empty folder
RUNS = {
    "agt --optimizer-preset=adadelta": "Did you mean 'adadelta_lr1'?",
    "agt --preset trec --data.train-on phrases": "train_on must be 'sentences' for name='trec'",
    "agt --model.num-layers 0": "num_layers must be at least 1",
    "agt --train.seeds 2": "train.seeds must be 1",
    "agt --data.manual-dir DIR": "glove.6B.300d.txt",
    "agt --data.manual-dir DIR --data.embeddings none": "train",
    "agt --preset ptb_small": "It is one of python -m experiments.rau.",
    "agt tables table1": "Did you mean python -m experiments.agt.tables table1?",
    "ga_net --model.gates.temperature 0": "temperature",
    "ga_net --preset trec --data.embeddings DIR/no.txt": "--data.embeddings none",
    "ga_net --preset=": "unknown preset ''.",
    "ga_net --preset bshift": "It is one of python -m experiments.ssan.",
    "ga_reader make-cloz": "Did you mean python -m experiments.ga_reader make-cloze?",
    "ga_reader --model.hops 0": "hops must be at least 1",
    "ga_reader --data.fraction 0": "fraction must be in (0, 1]",
    "ga_reader --epochs 0": "epochs must be positive",
    "ga_reader --train.seeds 2": "train.seeds must be 1",
    "ga_reader --preset cbt_ne --data.manual-dir DIR": "glove.6B.100d.txt",
    **{
        f"ga_reader --preset {preset} --data.manual-dir DIR --data.embeddings none": named
        for preset, named in (
            ("cbt_cn", "cbtest_CN_train.txt"), ("cnn", "cnn/questions"), ("wdw", "who_did_what"),
        )
    },
    "rau --model.rescale --model.attention sigmoid": "rescale must be False",
    "rau --train.seeds 2": "train.seeds must be 1",
    "rau --preset mnist --data.manual-dir DIR": "train-images-idx3-ubyte",
    "rau --preset imdb --data.manual-dir DIR --data.embeddings none": "aclImdb",
    "rau --preset imdb --data.embeddings DIR/no.txt --data.manual-dir DIR": "glove",
    "rau --preset trec": "experiments.agt and of python -m experiments.ga_net.",
    "ssan --preset bshft": "Did you mean 'bshift'?",
    "ssan --model.select-layer 1": "select-layers",
}  # fmt: skip
TABLES = {
    "agt table1 --seeds 0": "--seeds must be at least 1",
    "agt gate_bias --ablate-modes zero": "--ablate-modes is an option of ablation",
    "agt table9": "table9",
    "ga_net figure4 --data trec": "--data is an option of table1",
    "ga_reader figure3 --data cbt_ne --manual-dir DIR --embeddings none": "cbtest_NE_train.txt",
    "rau table3 --hidden 28": "--hidden is an option of table1",
    "rau figure5 --learning-rate 1e-3": "--learning-rate is an option of table1 and figure7",
    "rau figure3 --data digits": "--data is an option of table1",
    "rau figure5 --data digits": "--data must be of mnist, fashion_mnist for figure5",
    "rau long --data ptb_small": "--data must be of mnist, fashion_mnist for long",
    "rau table1 --hidden 28 --learning-rate 0.5": "give one of the two",
    "rau matched --data ptb_small": "--data must be classifiers for matched",
    "ssan table2 --data x": "unknown preset 'x'",
    "ssan table2 --data bshit": "Did you mean 'bshift'?",
    "ssan table2 --layers 7": "--layers",
    "ssan modes --layers 1": "--layers is an option of table2, table3 and bound",
    "ssan table2 --no-local": "--local is an option of table6",
    "ssan table2 --data bshift_local": "got 'bshift_local', which is for single runs",
    "ssan figure3 --data tree_depth": "reordered sentences",
    "ssan neighbours --data nli": "--data must be among bshift, tree_depth, top_const for neigh",
}
PAPERS = ("agt", "ga_net", "ga_reader", "rau", "ssan")
RUNS |= {f"{paper} --cpu-devices 0": "--cpu-devices must be at least 1" for paper in PAPERS}
TABLES |= {f"{paper} render --cpu-devices 0": "--cpu-devices must be at" for paper in PAPERS}


COMMANDS = {
    "missing --papers ga_nat": "--papers: unknown paper 'ga_nat'. Did you mean 'ga_net'? Papers: ",
    "missing --seeds 0": "--seeds must be at least 1, got 0",
    "missing --cpu-devices 0": "at least 1",
    "missing --manual-dir none-such": "--manual-dir none-such: there is no such folder",
    "verify toy/plain/0": "PAPER/DATA/VARIANT/SEED, such as ga_net/trec/soft/0, got 'toy/plain/0'",
    "verify tay/toy/plain/0": "unknown paper 'tay'. Papers: ",
    "verify rau/mnist/gru/77": "there is no record",
}


def measured(benchmark, **options):
    return lambda: benchmark.main(benchmark.Options(**options))


BENCHMARKS = {
    "compile": [
        (measured(compile, layers=()), "layers"),
        (measured(compile, words=(0,)), "words"),
        (measured(compile, repeats=0), "repeats"),
    ],
    "recurrence": [
        (measured(recurrence, devices=3), "devices|batch=32|3"),
        (measured(recurrence, layers=0), "layers|1|0"),
        (measured(recurrence, sizes=("1,2",)), "sizes|B,T,H|'1,2'"),
        (measured(recurrence, contestants=("cudnn",)), "contestants|'cudnn'"),
        (measured(recurrence, figures=("a.json",)), "docs|--docs"),
    ],
}


@pytest.fixture
def empty(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("line", RUNS)
def test_a_run_refuses_what_makes_no_sense(line, empty, monkeypatch, capsys):
    paper, *args = line.replace("DIR", str(empty)).split()
    monkeypatch.chdir(empty)
    message = refused(importlib.import_module(f"experiments.{paper}.__main__").main, args, capsys)
    assert RUNS[line] in message
    assert list(empty.rglob("*.jsonl")) == []


@pytest.mark.parametrize("line", TABLES)
def test_a_table_refuses_what_makes_no_sense(line, empty, tmp_path, capsys):
    paper, *args = line.replace("DIR", str(empty)).split()
    places = ["--results", str(tmp_path / "r"), "--runs", str(tmp_path / "w")]
    main = importlib.import_module(f"experiments.{paper}.tables").main
    assert TABLES[line] in refused(main, [*args, *places], capsys)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("line", COMMANDS)
def test_missing_and_verify_refuse_what_makes_no_sense(line, empty, monkeypatch, capsys):
    monkeypatch.chdir(empty)
    assert COMMANDS[line] in refused(main, line.split(), capsys)


@refusals.each_row(BENCHMARKS)
def test_a_benchmark_refuses_what_cannot_be_measured(call, parts, error):
    refusals.refused(call, parts, error)
