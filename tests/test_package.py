"""What the library promises about itself as a whole."""

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import gatedjax
from experiments.core.papers import PAPERS
from gatedjax._utils.json import to_json
from tests._programs import environment
from tests._sources import trees_of_the_library
from tests.conftest import ROOT
from tests.lower_bounds import constraints, requirements
from tests.text._runs import DOCUMENT, QUESTION, reader_run

DATA = [
    path
    for end in ("js", "css", "html", "cu", "csv.gz")
    for path in (ROOT / "gatedjax").rglob(f"*.{end}")
]


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.slow
def test_only_the_checkpoint_module_imports_orbax():
    sources = trees_of_the_library().items()
    users = {p.name for p, tree in sources if any(n[:5] == "orbax" for n in _imports(tree))}
    assert users == {"checkpoint.py"}


# an extra of a package on an index, or the package itself: nobody of us owns that name there
_FROM_AN_INDEX = re.compile(r"gatedjax\[[a-z]|pip install (?:-\S+ )*[\"']?gatedjax(?![/-])")


def test_nobody_is_told_to_install_gatedjax_from_an_index():
    folders = ("gatedjax", "experiments", "tests", "docs", "notebooks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    texts = (".py", ".md", ".ipynb", ".js", ".html", ".css", ".txt")
    paths = [path for path in paths if path.suffix in texts and "_build" not in path.parts]
    paths += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "setup.cfg")]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        if (match := _FROM_AN_INDEX.search(path.read_text(encoding="utf-8")))
    ]
    assert not found


_WITHOUT_OPTIONAL = """
import importlib, importlib.abc, pkgutil, sys

optional = set(sys.argv[1:])

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in optional:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import gatedjax
from gatedjax import data

for module in pkgutil.walk_packages(gatedjax.__path__, "gatedjax."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        print(module.name, error)
train = data.load("polarity", "train")
batches = data.Batches(data.encode(train, data.Vocabulary.build([train])), batch_size=4)
assert [b["example_id"].tolist() for b in batches.iterate(3, 5)] == [
    batches[step]["example_id"].tolist() for step in (3, 4)
]
try:
    data.load("imdb_reviews", "train", data_dir="nowhere")
except ImportError as error:
    print(error)
"""


@pytest.mark.slow
def test_the_library_needs_nothing_optional_and_names_what_is_missing():
    required = {re.split(r"[^\w-]", line)[0] for line in _install_requires()}
    assert len(required) == 14
    optional = [
        *("tensorflow_datasets", "grain", "array_record", "importlib_resources", "pyarrow"),
        *("chex", "matplotlib", "flatbuffers", "tokenizers", "sacrebleu", "seqeval"),
        *("torch", "gensim", "anywidget", "pandas", "polars", "datasets", "PIL", "tensorboardX"),
        *("openpyxl", "zstandard"),
    ]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_OPTIONAL, *optional],
        capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    need = "tensorflow-datasets and array-record and importlib_resources: pip install "
    need += "tensorflow-datasets array-record importlib_resources"
    assert done.stdout.splitlines() == [
        f"gatedjax.data.builders the builders of data sets need {need}",
        f"data set 'imdb_reviews' needs {need}",
    ]


def _install_requires():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options"]["install_requires"].splitlines()
    return [line for line in map(str.strip, lines) if line and not line.startswith("#")]


# they return values, exchange them between processes, or write a text that they alone read
_NO_FILES = {"json.py", "distributed.py", "checkpoint.py"}


@pytest.mark.slow
def test_no_file_gets_a_number_that_is_no_json():
    found = []
    for path, tree in trees_of_the_library().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("json.dumps", "json.dump")
                and not any(
                    word.arg == "allow_nan" and ast.unparse(word.value) == "False"
                    for word in node.keywords
                )
                and path.name not in _NO_FILES
            ):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_numbers_that_are_not_finite_become_null():
    value = {"a": [1.5, float("nan"), (np.float64("inf"), {"b": -float("inf")})], "c": "NaN"}
    assert to_json(value) == '{"a": [1.5, null, [null, {"b": null}]], "c": "NaN"}'
    assert to_json({"é": 1}, ensure_ascii=False, indent=1) == '{\n "é": 1\n}'
    with pytest.raises(TypeError, match="a value that JSON can store, got object"):
        to_json({"a": object()})


def test_unknown_attribute_is_named():
    with pytest.raises(AttributeError, match="no attribute 'attention'"):
        _ = gatedjax.attention


def test_a_star_import_has_the_names_that_load_on_first_use():
    names: dict[str, object] = {}
    exec("from gatedjax.gates import *", names)
    public = {name for name in dir(gatedjax.gates) if not name.startswith("_")}
    assert (
        {"gate_modes", "measure", "enumerate", "Reinforce"}
        <= public
        == names.keys() - {"__builtins__"}
    )
    assert names["measure"] is gatedjax.gates.measure
    assert {"load_inference", "export_onnx", "gru_to_torch", "load"} <= set(dir(gatedjax.export))


def test_every_dependency_has_one_lower_bound():
    for name, written in requirements().items():
        assert len(written) == 1, (name, written)
        lower = [bound for (bounds,) in [written] for bound in bounds if bound.startswith(">=")]
        assert len(lower) == 1, (name, written)


def test_orbax_and_nothing_else_has_an_upper_bound():
    upper = {
        name: bounds
        for name, (bounds,) in requirements().items()
        if any(not bound.startswith(">=") for bound in bounds)
    }
    assert upper == {"orbax-checkpoint": (">=0.12", "<1")}


def test_constraints_are_the_lower_bounds_and_written_nowhere_else():
    assert "flax==0.12.7" in constraints()
    assert len(constraints()) == len(requirements())
    for path in (ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "README.md"):
        assert not any(line in path.read_text("utf-8") for line in constraints())


def test_every_python_of_setup_cfg_is_one_of_the_tiers():
    text = (ROOT / "setup.cfg").read_text("utf-8")
    versions = re.findall(r"Programming Language :: Python :: (3\.\d+)", text)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"OLDEST_PYTHON ?= python{versions[0]}\n" in makefile
    assert f"python_requires = >={versions[0]}\n" in text
    assert f"NEWEST_PYTHON ?= python{versions[-1]}\n" in makefile


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A function that runs the console script of an installed wheel in an empty folder.

    The wheel is installed without its dependencies, which are those of this environment; what may
    be on its path besides, `experiments` of a checkout, is hidden.
    """
    place = tmp_path_factory.mktemp("wheel")
    shutil.copytree(
        ROOT / "gatedjax", place / "src" / "gatedjax", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "src")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    # an absolute path: a bare name would be one of a package index
    built = subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", place, place / "src"], capture_output=True
    )
    if built.returncode and b"No matching distribution found for setuptools" in built.stderr:
        pytest.skip("the build needs setuptools from a package index, and there is none")
    assert not built.returncode, built.stderr.decode()
    (wheel,) = place.glob("*.whl")
    install = ["install", "--no-deps", "--no-index", "--ignore-installed", "--prefix", place]
    subprocess.run([*pip, *install, wheel], check=True)
    (packages,) = place.glob("lib*/python*/site-packages")
    assert not (packages / "experiments").exists()
    hidden = "raise ImportError('a wheel has no experiments')"
    (packages / "experiments.py").write_text(hidden, encoding="utf-8")
    empty = place / "empty"
    empty.mkdir()

    def run(*args, command=(str(place / "bin" / "gatedjax"),), **more):
        done = subprocess.run(
            [*command, *map(str, args)],
            cwd=empty,
            env=environment() | {"PYTHONPATH": str(packages), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            **more,
        )
        assert not list(empty.iterdir())
        return done

    run.packages, run.wheel = packages, wheel
    return run


@pytest.mark.slow
def test_an_installed_wheel_has_the_console_script(installed):
    usage = installed("--help").stdout
    assert usage.startswith("usage: gatedjax COMMAND ...\n")
    assert installed("--help", command=[sys.executable, "-m", "gatedjax"]).stdout == usage.replace(
        "gatedjax COMMAND", "python -m gatedjax COMMAND"
    ).replace("gatedjax --version", "python -m gatedjax --version")
    where = "import gatedjax; print(gatedjax.__file__, gatedjax.__version__)"
    found = installed("-c", where, command=[sys.executable]).stdout
    assert found.startswith(str(installed.packages))
    assert found.endswith(f" {gatedjax.__version__}\n")
    assert installed("answers").returncode == 2
    assert (installed.packages / "gatedjax" / "data" / "sets" / "demo.csv.gz").is_file()
    page = installed.packages / "gatedjax" / "explore" / "page"
    assert {path.name for path in page.iterdir()} == {"index.html", "explorer.css", "explorer.js"}


@pytest.mark.slow
def test_a_wheel_holds_the_library_and_nothing_else(installed):
    with zipfile.ZipFile(installed.wheel) as archive:
        names = set(archive.namelist())
        (place,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        about = archive.read(f"{place}/METADATA").decode()
    held = {name for name in names if not name.startswith(f"{place}/")}
    sources = {path.relative_to(ROOT).as_posix() for path in trees_of_the_library()}
    assert held == {*sources, "gatedjax/py.typed"} | {
        path.relative_to(ROOT).as_posix() for path in DATA
    }
    assert {f"{place}/entry_points.txt", f"{place}/licenses/LICENSE"} <= names
    assert f"\nVersion: {gatedjax.__version__}\n" in about
    assert "\nAuthor: The gatedjax developers\n" in about
    assert re.search(r"\nLicense(-Expression)?: Apache-2.0\n", about)
    # no address is known, so none is claimed
    assert "Project-URL" not in about
    assert "Home-page" not in about


def test_the_citation_has_the_version_and_the_papers_of_the_results():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {gatedjax.__version__}\n" in text
    bibliography = (ROOT / "docs" / "references.bib").read_text("utf-8")
    titles = {title.strip('"') for title in re.findall(r"^ +title: (.+)$", text, re.MULTILINE)}
    assert len(titles) == len(PAPERS)
    # The bibliography has the sources of methods, too.
    assert titles <= set(re.findall(r"^  title = \{(.+)\},$", bibliography, re.MULTILINE))


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.name)
def test_workflows_call_the_targets_of_the_makefile(path):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"run: make (\S+)", path.read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.slow
def test_an_installed_wheel_exports_a_run_and_answers(installed, tmp_path):
    """Neither needs the program that has trained the run."""
    document = tmp_path / "d.txt"
    document.write_text(DOCUMENT, encoding="utf-8")
    run, out = reader_run(tmp_path / "run"), tmp_path / "model"
    for args in (["export", run, "--out", out], ["answer", out, "--document", document, *QUESTION]):
        done = installed(*args)
        assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= 2
