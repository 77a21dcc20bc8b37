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

from gatedjax import training
from tests._sources import trees, trees_of_the_library
from tests.conftest import ROOT

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
    r"(one|found|kept|given|held|what|wanted|known|made|said|told|asked|begun|taken|chosen|left"
    r"|drawn|tried|opened|own|apart|strange|nothing|unseen|ended|near|usual|later|more|others|rest"
    r"|whole|there|here|each|listed)"
)
MOST_BARE_NAMES = 0.003
"""Share of names that are a participle, a pronoun or an adverb, and so name no thing."""

LEAST_COMMENTS = 0.03
"""Share of the lines with text that are comments of their own."""
MOST_HIDDEN_SHARE = 0.341
"""Share of the docstring lines of gatedjax that describe names that no user can import."""
MOST_HIDDEN_LINES = 5500
LEAST_EXPORTED_LINES = 8_280
WITHOUT_EXAMPLE = {"gate_modes", "measure", "plot_studies"}


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_names_are_verbs_nouns_or_claims():
    names = [name.strip("_") for tree in trees().values() for name in _names(tree)]
    bare = [name for name in names if BARE.fullmatch(name)]
    assert len(bare) <= MOST_BARE_NAMES * len(names), collections.Counter(bare)


def test_comments_give_reasons_as_often_as_now():
    lines = [line.strip() for path in trees() for line in path.read_text("utf-8").splitlines()]
    code = [line for line in lines if line]
    assert sum(line.startswith("#") for line in code) >= LEAST_COMMENTS * len(code)


def _exported():
    """The names that the `__init__` files of gatedjax, or its registry, import or list."""
    names = ("__init__.py", "_registry.py")
    files = [tree for path, tree in trees().items() if path.name in names]
    nodes = [node for tree in files for node in ast.walk(tree)]
    imports = [alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    listed = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {alias.asname or alias.name for alias in imports} | set(listed)


def _count_lines(node, kind, exported, lines):
    """Adds the docstring lines below a node to `lines`; `kind` is None at the top of a module."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef):
            _count_lines(child, kind, exported, lines)
            continue
        if kind == "private" or re.match(r"_(?!_)", child.name):
            own = "private"
        else:
            own = kind or ("exported" if child.name in exported else "internal")
        if ast.get_docstring(child):
            lines[own] += child.body[0].end_lineno - child.body[0].lineno + 1
        within = own if isinstance(child, ast.ClassDef) else "private"
        _count_lines(child, within, exported, lines)


@pytest.mark.slow
def test_docstrings_are_where_a_user_reads():
    exported, lines = _exported(), collections.Counter()
    for tree in trees_of_the_library().values():
        _count_lines(tree, None, exported, lines)
    hidden = lines["internal"] + lines["private"]
    assert hidden <= MOST_HIDDEN_SHARE * lines.total(), lines
    assert hidden <= MOST_HIDDEN_LINES
    assert lines["exported"] >= LEAST_EXPORTED_LINES


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
            # A message that another function has made, such as that of `missing`, has no text of
            # its own here, and neither has a place before another message, such as "--option: ".
            place_only = len(text.split()) == 1 and text.endswith(": ")
            if isinstance(node.args[place], ast.Call) or place_only:
                continue
            # "no text" and "no label" are reasons in the report of the lines that are set aside.
            if set(words(text)) - {"got", "and", "no"}:
                yield node.lineno, text


@pytest.mark.parametrize(
    "package",
    [
        *("_commands", "_utils", "analysis", "data", "explore", "export", "functional", "gates"),
        *("lexicon", "models", "nn", "text", "training"),
    ],
)
def test_messages_give_the_expected_values(package):
    found = []
    for path, tree in trees().items():
        if path.is_relative_to(ROOT / "gatedjax" / package):
            found += [(path.name, *message) for message in _messages(tree)]
    assert len(found) >= 10
    assert [message for message in found if not re.search(r"\bmust\b", message[2])] == []


def _public_functions(package):
    module = importlib.import_module(f"gatedjax.{package}")
    values = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    assert functions
    return functions


@pytest.mark.parametrize(
    "package",
    [
        *("analysis", "analysis.phrases", "analysis.trees", "data", "explore", "export"),
        *("functional", "gates", "lexicon", "models", "training"),
    ],
)
def test_public_functions_describe_their_arguments_and_result(package):
    faults = []
    for name, value in _public_functions(package).items():
        signature, text = inspect.signature(value), inspect.getdoc(value)
        if signature.parameters and "\nArgs:\n" not in text:
            faults.append(f"{name}: Args")
        if signature.return_annotation is not None and not re.search(r"\n(Return|Yield)s:\n", text):
            faults.append(f"{name}: Returns")
    assert faults == []


@pytest.mark.parametrize("package", ["functional", "gates", "models", "training"])
def test_public_functions_have_an_example_that_the_test_of_the_docs_runs(package):
    # gate_modes and measure take a trained network, plot_studies their results
    functions = _public_functions(package)
    assert {name for name in functions if ">>> " not in functions[name].__doc__} <= WITHOUT_EXAMPLE


def test_the_docstring_of_fit_fits_on_one_screen():
    assert len(training.fit.__doc__.splitlines()) <= 45
