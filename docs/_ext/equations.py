"""The equations of docstrings as LaTeX, where they are formulas without sentences."""

import re

GREEK = "alpha|beta|gamma|delta|epsilon|eta|theta|lambda|mu|nu|pi|rho|sigma|tau|phi|psi|omega"
COMMANDS = re.compile(rf"{GREEK}|exp|log|tanh|max|min|sin|cos|sum|prod|in")
SIGNS = {
    "<=": r"\le",
    ">=": r"\ge",
    "!=": r"\ne",
    "~": r"\sim",
    "*": r"\cdot",
    ".": r"\cdot",
    "...": r"\dots",
}
# A block with such a word is a sentence, not a formula.
WORDS = re.compile(
    "an|and|are|as|at|belongs|by|da|else|elsewhere|every|for|from|given|has|if|is|its|none|normal"
    "|not|of|on|open|or|otherwise|over|per|real|sentence|span|split|step|that|the|then|to|token"
    "|tokens|until|up|valid|where|which|while|with|without|words",
    re.IGNORECASE,
)
TOKEN = re.compile(
    r"(?P<column> {2,})|(?P<blank> )|(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z]+\d*'*)"
    r"|(?P<script>[_^](?:\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\)|-?\w+(?:,\w+)*))"
    r"|(?P<sign><=|>=|!=|\.\.\.|[-+*/.,;:=<>~()\[\]|])"
)


def latex(block: str) -> str | None:
    """Returns the LaTeX of an equation, or None for a block that is no formula.

    The lines of the block become lines of the formula; two or more spaces become a wide space.
    """
    lines = [_line(line.strip().rstrip(".")) for line in block.strip().split("\n")]
    converted = [line for line in lines if line is not None]
    if len(converted) < len(lines) or "=" not in block:
        return None
    if len(converted) == 1:
        return converted[0]
    rows = r" \\ ".join(f"& {line}" for line in converted)
    return rf"\begin{{aligned}} {rows} \end{{aligned}}"


def _line(line: str) -> str | None:
    parts, end, kinds = [], 0, [match.lastgroup for match in TOKEN.finditer(line)]
    for i, match in enumerate(TOKEN.finditer(line)):
        kind, text = str(match.lastgroup), match.group()
        identifier = re.match(
            r"(?!sum|prod|softmax|mean|concat)[a-z]{3,}_[a-z]{2,}", line[match.start() :]
        )
        if match.start() != end or identifier or (kind == "name" and WORDS.fullmatch(text)):
            return None
        end = match.end()
        operands = "name", "number", "script"
        if kind == "blank" and kinds[i - 1] in operands and kinds[i + 1] in operands:
            parts.append(r"\,")  # a product
        elif (converted := _token(kind, text)) is None:
            return None
        else:
            parts.append(converted)
    return " ".join(filter(None, parts)) if end == len(line) else None


def _token(kind: str, text: str) -> str | None:
    if kind == "column":
        return r"\quad"
    if kind == "name":
        return _name(text)
    if kind == "script":
        inner = text[2:-1] if text[1] in "{(" else text[1:]
        if inner.isalpha() and not COMMANDS.fullmatch(inner):
            return f"{text[0]}{{{inner}}}"
        return None if (converted := _line(inner)) is None else f"{text[0]}{{{converted}}}"
    return "" if kind == "blank" else SIGNS.get(text, text)


def _name(text: str) -> str:
    base = text.rstrip("'0123456789")
    digits = text[len(base) :].rstrip("'")
    if COMMANDS.fullmatch(base):
        shown = rf"\{base}"
    else:
        shown = base if len(base) == 1 else rf"\mathrm{{{base}}}"
    return shown + (f"_{{{digits}}}" if digits else "") + "'" * text.count("'")
