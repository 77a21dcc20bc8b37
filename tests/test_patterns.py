"""The time of all regular expressions on hostile text: linear in its length."""

import ast
import importlib
import itertools
import re
import time
from re import _constants as codes
from re import _parser

import pytest

from gatedjax.data.text import _tokenize
from gatedjax.data.text._tokenize import social_tokens
from gatedjax.text.corpus._corpus import _LIST
from tests._sources import dotted, trees, trees_of_the_library
from tests._speed import seconds_of_python
from tests.conftest import ROOT

# The first shows a pattern of cubic time, which would not end on the second.
LENGTHS = 500, 10_000
# A pattern whose time grows with the square of the length takes several times as long. A pattern of
# linear time may do so on a busy machine, but it takes four times the time of a quarter of the text
# where a square takes sixteen times.
SECONDS, MOST_GROWTH = 0.03, 8
SOURCES = {path: path.read_text("utf-8") for path in sorted((ROOT / "gatedjax").rglob("*.py"))}
MADE = (
    _tokenize._social(True, False, True, True, False),
    _tokenize._social(False, True, True, True, True),
    _tokenize._character(),
    _tokenize._with_marks(),
)
"""The patterns that functions make."""
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
SAMPLE = " a1.-'\"@#<(&,:/=%_\t\n\x01é\u0e01\u0301\u4e00\U0001f600"
ALL_METHODS = ("search", "match", "fullmatch", "finditer")


def methods_of(name, source):
    """The methods of a pattern that the source calls; "finditer" stands for all that search on."""
    used = re.findall(rf"\b{re.escape(name)}\.(\w+)\(|re\.(\w+)\({re.escape(name)}\b", source)
    methods = {method for pair in used for method in pair if method}
    methods = {m if m in ALL_METHODS else "finditer" for m in methods}
    return sorted(methods) or ALL_METHODS


def patterns_of_modules():
    for path, source in SOURCES.items():
        if not re.search(r"^import re$", source, re.MULTILINE):
            continue
        values = vars(importlib.import_module(dotted(path)))
        for name, value in list(values.items()):
            for part in value.values() if isinstance(value, dict) else [value]:
                if isinstance(part, re.Pattern):
                    yield part, methods_of(name, source)
        for node in ast.walk(trees()[path]):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                    args=[ast.Constant(value=str(text)), *_],
                ) if method != "compile":
                    yield re.compile(text), [method]


def samples(tree):
    """Short texts that the tree of a pattern matches, if what it looks ahead for is left out."""
    texts = [""]
    for code, value in tree:
        match code:
            case codes.LITERAL:
                parts = [chr(value)]
            case codes.SUBPATTERN:
                parts = samples(value[3])
            case codes.ATOMIC_GROUP:
                parts = samples(value)
            case codes.BRANCH:
                parts = [part for branch in value[1] for part in samples(branch)]
            case code if code in REPEATS:
                parts = [part * max(value[0], 1) for part in samples(value[2])]
            case codes.IN | codes.NOT_LITERAL | codes.ANY:
                parts = _members(code, value)
            case _:
                continue
        parts = list(dict.fromkeys(parts))[:6]
        texts = [text + part for text, part in itertools.product(texts, parts)][:6]
    return texts


def _members(code, value):
    """Characters of a class: those of SAMPLE, or else the first of its ranges."""
    if code is codes.ANY:
        return ["a"]
    if code is codes.NOT_LITERAL:
        return ["b" if value == ord("a") else "a"]
    listed = [
        item[0] if kind is codes.RANGE else item
        for kind, item in value
        if kind in (codes.RANGE, codes.LITERAL)
    ]
    is_negated = value[0][0] is codes.NEGATE
    return [c for c in SAMPLE if _is_in(c, value) != is_negated] or list(map(chr, listed))


def _is_in(character, value):
    spelled = {
        codes.CATEGORY_DIGIT: r"\d",
        codes.CATEGORY_SPACE: r"\s",
        codes.CATEGORY_WORD: r"\w",
        codes.CATEGORY_NOT_DIGIT: r"\D",
        codes.CATEGORY_NOT_SPACE: r"\S",
        codes.CATEGORY_NOT_WORD: r"\W",
    }
    for kind, item in value:
        if (
            (kind is codes.LITERAL and ord(character) == item)
            or (kind is codes.RANGE and item[0] <= ord(character) <= item[1])
            or (kind is codes.CATEGORY and re.match(spelled[item], character))
        ):
            return True
    return False


def repeated(tree, before=("",)):
    """Yields each repetition of a pattern: texts that come before it, and texts that it repeats."""
    for code, value in tree:
        match code:
            case code if code in REPEATS:
                if value[1] > LENGTHS[-1]:
                    yield before, samples(value[2])
                yield from repeated(value[2], before)
            case codes.SUBPATTERN:
                yield from repeated(value[3], before)
            case codes.ATOMIC_GROUP:
                yield from repeated(value, before)
            case codes.BRANCH:
                for branch in value[1]:
                    yield from repeated(branch, before)
        after = samples([(code, value)])[:2]
        before = [text + part for text in before for part in after][:2]


def hostile_texts(pattern, length):
    """Texts of a length that a repetition of the pattern matches, before a character it may not."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
    found = {}
    for before, units in repeated(_parser.parse(source, pattern.flags & ~re.UNICODE)):
        pairs = ["".join(pair) for pair in itertools.combinations(units[:4], 2)]
        for start, unit in itertools.product(before, [*units, *pairs]):
            for word in filter(None, (unit, start, start + unit)):
                found[start + word * (length // len(word)) + "\0"] = None
    return list(found)


def seconds(pattern, method, text):
    """Returns the least time of three, because another process may slow one of them."""
    times = []
    for _ in range(3):
        start = time.process_time()
        found = getattr(pattern, method)(text)
        if method == "finditer":
            for _ in found:
                pass
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.slow
def test_no_pattern_takes_long_on_hostile_text():
    made = [(pattern, ("finditer",)) for pattern in MADE]
    cases = {(pattern, method) for pattern, methods in [*patterns_of_modules(), *made]
             for method in methods}  # fmt: skip
    assert len(cases) > 50
    for pattern, method in cases:
        for text in (text for length in LENGTHS for text in hostile_texts(pattern, length)):
            hostile = text.encode() if isinstance(pattern.pattern, bytes) else text
            if (took := seconds(pattern, method, hostile)) > SECONDS:
                quarter = hostile[: len(hostile) // 4] + hostile[-1:]
                growth = took / seconds(pattern, method, quarter)
                assert growth < MOST_GROWTH, (pattern, method, text[:40], len(text))


@pytest.mark.slow
def test_functions_make_no_other_patterns():
    made = {
        f"{path.stem}.{function.name}"
        for path, tree in trees_of_the_library().items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"
    }
    assert made == {"_tokenize._social", "_tokenize._character", "_tokenize._with_marks"}


def test_the_tokens_of_a_long_text_with_an_at_sign_take_little_time():
    start = time.process_time()
    tokens = social_tokens("@" + "a." * 100_000)
    assert time.process_time() - start < 20 * seconds_of_python(1_000_000)
    assert len(tokens) == 2 * 100_000


@pytest.mark.parametrize(
    ("text", "is_list"),
    [
        ("[]", True), ("[ ]", True), ("[1, 2.5]", True), ("[ 'a', 'b' ]", True), ("['a']", True),
        ('["a\n"]', True), ("[1 x]", False), ("[a]", False), ("['a\"]", False), ("[1", False),
        ("['a'] x", False), ("['a' x]", False),
    ],
)  # fmt: skip
def test_lists_in_a_cell_are_recognised(text, is_list):
    assert bool(_LIST.fullmatch(text)) == is_list
