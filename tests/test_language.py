"""The language of docstrings, comments and names: counts that may fall but not rise.

CONTRIBUTING.md has the rules. A limit here is what the text has now; lower it when the text gets
better. The words of `RARE` are those that technical English rarely needs, because they leave out
the noun that the reader looks for.
"""

import ast
import collections
import functools
import importlib
import inspect
import io
import re
import tokenize

import pytest

from tests.conftest import ROOT

PACKAGES = ("gatedjax", "experiments")
RARE = {
    "what": 0.1,
    "one": 1.2,
    "every": 0.1,
    **dict.fromkeys(("those", "whose", "together"), 0.45),
    **dict.fromkeys(("says", "tells", "others", "beside", "alone", "kept", "held"), 0.1),
    **dict.fromkeys(("nothing", "own", "made"), 0.25),
}
"""Word -> its limit per 1,000 words."""
OPENINGS = re.compile(r"(What|How|Where|Of|As|That|Those|Whether|Who|Which|Whatever|Beside|Both)\b")
MOST_OPENINGS = 2
"""Docstrings that open with such a word instead of a verb or a noun."""
LEAST_VERBS = 0.95
"""Share of the docstrings of functions that open with a verb in the third person."""
BARE = re.compile(
    r"(one|found|kept|given|held|what|read|wanted|known|made|said|told|asked|begun|taken|chosen|left"
    r"|drawn|tried|opened|own|apart|strange|nothing|unseen|ended|near|usual|later|more|others|rest"
    r"|whole|there|here|each|listed)"
)
MOST_BARE_NAMES = 0.003
"""Share of names that are a participle, a pronoun or an adverb, and so name no thing."""

LEAST_COMMENTS = 0.028
"""Share of the lines with text that are comments of their own."""
WITHOUT_EXAMPLE = {"gate_modes", "measure", "plot_studies"}


@functools.cache
def trees():
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@functools.cache
def docstrings():
    """(place, node, text) of each docstring."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    return [
        (f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", node, text)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    ]


def comments():
    for path in trees():
        source = io.StringIO(path.read_text(encoding="utf-8"))
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def words(text):
    prose = re.sub(r"```.*?```|`[^`]*`|^\s*(>>>|\.\.\.).*$", " ", text, flags=re.DOTALL | re.M)
    return [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'-]*", prose)]


def test_words_that_leave_out_the_noun_stay_rare():
    texts = [text for _, _, text in docstrings()] + list(comments())
    counts = collections.Counter(word for text in texts for word in words(text))
    rates = {word: 1000 * counts[word] / counts.total() for word in RARE}
    assert {word: rate for word, rate in rates.items() if rate > RARE[word]} == {}


def test_docstrings_open_with_a_verb_or_a_noun():
    openings = [place for place, _, text in docstrings() if OPENINGS.match(text)]
    assert len(openings) <= MOST_OPENINGS, openings
    functions = [text for _, node, text in docstrings() if isinstance(node, ast.FunctionDef)]
    verbs = [text for text in functions if re.match(r"[A-Z][a-z]+s\b", text)]
    assert len(verbs) >= LEAST_VERBS * len(functions)


def _names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_names_are_verbs_nouns_or_claims():
    names = [name.strip("_") for tree in trees().values() for name in _names(tree)]
    bare = [name for name in names if BARE.fullmatch(name)]
    assert len(bare) <= MOST_BARE_NAMES * len(names), collections.Counter(bare)


def test_comments_give_reasons_as_often_as_now():
    lines = [line.strip() for path in trees() for line in path.read_text("utf-8").splitlines()]
    code = [line for line in lines if line]
    assert sum(line.startswith("#") for line in code) >= LEAST_COMMENTS * len(code)


def _messages(tree):
    """(line, literal text) of the errors that a module raises, and of the checks it calls."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name, place = ast.unparse(node.func), 1 if ast.unparse(node.func) == "check_that" else 0
        if name in ("ValueError", "TypeError", "check_that") and len(node.args) > place:
            parts = ast.walk(node.args[place])
            literals = [x.value for x in parts if isinstance(x, ast.Constant)]
            text = "".join(value for value in literals if isinstance(value, str))
            # a message that another function has made has no text of its own here
            if set(words(text)) - {"got", "and"}:
                yield node.lineno, text


@pytest.mark.parametrize("package", ["functional", "gates", "models", "nn"])
def test_messages_give_the_expected_values(package):
    found = []
    for path, tree in trees().items():
        if path.is_relative_to(ROOT / "gatedjax" / package):
            found += [(path.name, *message) for message in _messages(tree)]
    assert len(found) >= 20
    assert [message for message in found if not re.search(r"\bmust\b", message[2])] == []


@pytest.mark.parametrize("package", ["functional", "gates", "models", "nn", "text", "training"])
def test_public_functions_have_an_example_that_the_test_of_the_docs_runs(package):
    module = importlib.import_module(f"gatedjax.{package}")
    functions = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and inspect.isfunction(value)
        # gate_modes and measure take a trained network, plot_studies their results
        and name not in WITHOUT_EXAMPLE
    }
    assert len(functions) > 3 or package in ("models", "nn", "text")
    assert [name for name, value in functions.items() if ">>> " not in value.__doc__] == []
