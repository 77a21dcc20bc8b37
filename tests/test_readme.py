"""The README's code runs as pasted, and its claims about size and speed hold."""

import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from gatedjax import data
from tests.conftest import ROOT


def test_it_has_at_most_900_words():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_its_first_block_names_the_two_commands_that_set_up_everything():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]
    commands = [line.partition("#")[0].strip() for line in first.splitlines()]
    assert [command for command in commands if command.startswith("make ")] == [
        "make demo",
        "make test",
    ]
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "make test" in steps
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name, needed in (("demo", ".plots"), ("test", ".dev")):
        assert re.search(rf"^{name}: \$\(VENV\)/{re.escape(needed)}$", makefile, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:flax")
def test_its_programs_run_in_order_and_print_what_the_readme_says(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```\s+It prints `(.*?)`", text, re.DOTALL)
    assert len(programs) == text.count("```python") == 2
    scope: dict = {}
    for code, printed in programs:
        exec(compile(code, "README.md", "exec"), scope)
        assert capsys.readouterr().out.strip() == printed
    pooled = scope["pooled"]
    padded = scope["jnp"].ones((2, 5, 8)).at[1, 3:].set(7.0)
    again, _ = scope["Reader"](scope["nnx"].Rngs(0))(padded, scope["jnp"].array([5, 3]))
    assert (again == pooled).all()  # "Padding changes no real position"


@pytest.mark.slow
def test_exact_shap_values_give_words_that_are_not_there_the_share_in_the_readme():
    """For a linear model SHAP(word) = weight (value - mean value in training), in closed form."""
    train, test = (list(data.load("demo", split)) for split in ("train", "test"))
    tfidf = TfidfVectorizer(analyzer=lambda words: words)
    values = tfidf.fit_transform([example["tokens"] for example in train])
    labels = [example["label"] for example in train]
    model = LogisticRegression(max_iter=1000).fit(values, labels)
    tested = tfidf.transform([example["tokens"] for example in test]).toarray()
    weights = model.coef_[model.predict(tested)]
    mass = np.abs(weights * (tested - np.asarray(values.mean(axis=0))))
    share = np.where(tested == 0, mass, 0).sum(1) / mass.sum(1)
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"put {share.mean():.0%} of their mass".replace("%", " %") in text


@pytest.mark.slow
def test_import_adds_little_to_importing_jax_and_flax_and_loads_no_heavy_extra():
    code = (
        "import sys, time\n"
        "start = time.process_time()\n"
        "import jax, jax.numpy, flax.linen, optax\n"
        "between = time.process_time()\n"
        "import gatedjax\n"
        "print((time.process_time() - between) / (between - start))\n"
        "for name in gatedjax.__all__: getattr(gatedjax, name)\n"
        "heavy = {'tensorflow', 'tensorflow_datasets', 'orbax.checkpoint', 'matplotlib', 'grain'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    ratio, heavy = done.stdout.splitlines()
    assert float(ratio) < 0.1  # 0.002 were measured
    assert heavy == "[]"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("gatedjax.functional", {"flax", "optax", "orbax"}),
        ("gatedjax.lexicon, gatedjax.text.estimators", {"jax"}),
    ],
)
def test_a_room_that_needs_few_libraries_loads_few(module, absent):
    code = f"import sys, {module}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_its_ratios_of_times_are_those_of_the_page_of_speed():
    speed = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .partition("\n## Speed\n")[2]
        .partition("\n## ")[0]
    )
    page = (ROOT / "docs/speed.md").read_text(encoding="utf-8")
    ratios = re.findall(r"\b\d\.\d\d\b", speed)
    assert len(ratios) >= 5
    assert [ratio for ratio in ratios if ratio not in page] == []


@pytest.mark.slow
def test_the_table_of_papers_has_a_short_result_in_whole_sentences_for_each():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = text.split("| paper | idea | result of the runs here |")[1].split("\n\n")[0]
    results = [row.split("|")[3].strip() for row in rows.splitlines()[2:]]
    assert len(results) == 5
    for result in results:
        assert len(result.split()) <= 20, result
        assert result.endswith(".")
        assert re.search("reproduced|smaller|ruled out|undecided|not run", result), result
