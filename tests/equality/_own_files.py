"""Ten small files of own text, drawn without a library whose draws may change, and what is asked.

Their names are the keys of golden/own_text.json.
"""

import csv
import dataclasses
import io
import json
import random
from collections.abc import Iterable, Sequence


def listed(words: str) -> list[str]:
    return words.split()


GOOD = listed("lovely bright warm superb charming clever moving witty fresh gentle")
BAD = listed("dull slow awful tedious bland clumsy noisy weak stale grim")
COMMON = listed("the film was a story of it and in with for an evening at home music cast scene")
TOPICS = {
    "art": "paint gallery sculptor",
    "banking": "loan interest deposit",
    "cars": "engine brake gearbox",
    "chess": "bishop gambit endgame",
    "cooking": "oven flour simmer",
    "gardens": "seed compost prune",
    "health": "doctor fever dose",
    "law": "court appeal clause",
    "music": "violin chord opera",
    "sailing": "mast harbour tide",
    "space": "orbit comet rocket",
    "weather": "storm cloud frost",
}
FILLER = listed("we read that this is about some other thing today again")
LABELS = {
    "sport": ("goal", "match", "team"),
    "money": ("bank", "stock", "price"),
    "stage": ("play", "song", "drama"),
}
GRADES = ("poor", "fair", "good", "great")
GRADE_WORDS = (
    ("broken", "awful", "refund"),
    ("slow", "meh", "plain"),
    ("solid", "nice", "handy"),
    ("superb", "perfect", "brilliant"),
)
CHINESE = {"好": ("精彩", "感人", "喜欢", "好看"), "差": ("无聊", "糟糕", "失望", "难看")}
CHINESE_COMMON = ("这部电影", "的故事", "我觉得", "演员", "音乐", "昨天看了", "真的", "非常")
SETTINGS = ("A man", "A woman", "The child", "My dog")
ACTS = ("sleeps", "runs", "eats", "sings")
NAMES = ("John", "Mary", "Anna", "Émile")
PLACES = (("Paris",), ("Rome",), ("New", "York"))
UNKNOWN = "xyzzy qwrt!"


class Draws:
    """Draws by `random.Random.random`, whose values every version of Python has the same."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def one(self, items: Sequence):
        return items[int(self.random() * len(items))]

    def some(self, items: Sequence, count: int) -> list:
        return [self.one(items) for _ in range(count)]

    def mixed(self, words: Iterable[str]) -> list[str]:
        return [word for _, word in sorted((self.random(), word) for word in words)]


@dataclasses.dataclass(frozen=True)
class Case:
    """A file, the options with which it is trained, and the texts of which a model is asked."""

    file: str
    content: str
    texts: Sequence
    options: str = ""
    reading: str = ""  # options of train, look and evaluate that say how files are read
    kind: str = "TextClassifier"
    test: str = ""
    explained: Sequence[int] = (0, 1, 2)
    network: bool = False


def table(header: Sequence[str], rows: Iterable[Sequence], delimiter: str = ",") -> str:
    """Lines of columns, quoted where they must be."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def review(draws: Draws, good: bool) -> str:
    """Ten words of which two mostly tell the class; some have capitals, commas, quotes, breaks."""
    words = draws.some(COMMON, 8)
    words += [draws.one(GOOD if draws.random() < 0.8 else BAD) for _ in range(2)]
    if not good:
        swap = dict(zip([*GOOD, *BAD], [*BAD, *GOOD], strict=True))
        words = [swap.get(word, word) for word in words]
    words = draws.mixed(words)
    if draws.random() < 0.3:
        words[0] = words[0].title()
        words[3] += ","
        words[6] = f'"{words[6]}"'
    return ("\n" if draws.random() < 0.1 else " ").join(words) + draws.one((".", "!", "", " :-)"))


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    draws = Draws(seed)
    return [(review(draws, i % 3 > 0), "positive" if i % 3 else "negative") for i in range(count)]


def topics(count: int) -> list[tuple[str, str]]:
    draws, names = Draws(2), list(TOPICS)
    rows = []
    for i in range(count):
        # small classes are rarer, and a tenth of the texts have words of another class
        name = names[i % 12] if i < 120 else names[min(int(draws.random() * 12), i % 12)]
        source = name if draws.random() < 0.9 else draws.one(names)
        words = draws.some(TOPICS[source].split(), 2) + draws.some(FILLER, 5)
        rows.append((" ".join(draws.mixed(words)), name))
    return rows


def told(draws: Draws, truth: bool) -> bool:
    """What a text says of a label, which is wrong in a tenth of the texts."""
    return truth != (draws.random() < 0.1)


def several(count: int) -> str:
    draws, lines = Draws(3), []
    for number in range(count):
        labels = [name for name in LABELS if draws.random() < 0.4]
        words = draws.some(FILLER, 5)
        words += [
            w for name in LABELS if told(draws, name in labels) for w in draws.some(LABELS[name], 2)
        ]
        row = {"id": number, "text": " ".join(draws.mixed(words)), "label": labels}
        lines.append(json.dumps(row) + "\n")
    return "".join(lines)


def prices(count: int) -> list[tuple[str, str]]:
    draws = Draws(4)
    worth = {"gold": 40.5, "silver": 12.25, "wooden": -3.0, "old": -7.5, "large": 9.0, "tiny": -4.0}
    rows = []
    for _ in range(count):
        found = [name for name in worth if draws.random() < 0.35]
        words = found + draws.some(listed("a ring box lamp with from the shop"), 5)
        price = 20 + sum(worth[name] for name in found) + 6 * draws.random()
        rows.append((" ".join(draws.mixed(words)), f"{price:.2f}"))
    return rows


def grades(count: int) -> list[tuple[str, str]]:
    draws = Draws(5)
    rows = []
    for _ in range(count):
        grade = int(draws.random() * 4)
        told = min(3, max(0, grade + draws.one((0, 0, 0, 1, -1))))
        words = draws.some(GRADE_WORDS[told], 2) + draws.some(FILLER, 5)
        rows.append((" ".join(draws.mixed(words)), GRADES[grade]))
    return rows


def chinese(count: int) -> list[tuple[str, str]]:
    draws = Draws(6)
    rows = []
    for i in range(count):
        label = "好差"[i % 2]
        told = label if draws.random() < 0.85 else "差好"[i % 2]
        words = draws.some(CHINESE_COMMON, 4) + draws.some(CHINESE[told], 2)
        rows.append(("".join(draws.mixed(words)) + draws.one(("。", "!", "")), label))
    return rows


def pairs(count: int) -> list[tuple[str, str, str]]:
    draws = Draws(7)
    rows = []
    for _ in range(count):
        who, does = draws.one(SETTINGS), draws.one(ACTS)
        other = does if draws.random() < 0.5 else draws.one(ACTS)
        label = "same" if does == other else "different"
        rows.append((f"{who} {does} now.", f"{draws.one(SETTINGS)} {other}.", label))
    return rows


def sentences(count: int) -> str:
    draws, parts = Draws(8), []
    for _ in range(count):
        place = draws.one(PLACES)
        words = [draws.one(NAMES), draws.one(("lives", "works")), "in", *place]
        tags = ["B-PER", "O", "O", "B-LOC", "I-LOC"]
        parts.append("".join(f"{w}\tX\t{t}\n" for w, t in zip(words, tags, strict=False)))
    return "\n".join(parts)


TWO_LABELS = "__label__up __label__down bright and dull\n"


def odd_lines() -> str:
    """Lines of fastText, of which some have no label, no text, or are there twice."""
    draws, lines = Draws(9), []
    for i in range(150):
        text = review(draws, i % 2 > 0).replace("\n", " ")
        lines.append(f"__label__{'up' if i % 2 else 'down'} {text}")
    lines[10] = "a line without a label"
    lines[20] = "__label__up"
    lines[21] = "__label__down   "
    lines[30] = ""
    lines[40] = "__label__up a zero \0 in it"
    lines[50:54] = [lines[5]] * 4
    lines[60] = lines[7].replace("__label__up", "__label__down")
    lines[61] = lines[7].upper().replace("__LABEL__UP", "__label__up")
    lines[70] = lines[70] + " __label__up" if "__label__up" in lines[70] else lines[70]
    lines[80] = "__label__up  see https://example.org/a?b=1 @friend #tag \U0001f600 &amp; more"
    return "\n".join(lines) + "\n"


REVIEWED = [
    "a lovely, warm film",
    'The cast was "dull" and the music Superb!',
    "slow slow slow slow and tedious",
    "",
    UNKNOWN,
    "the of and",
    "LOVELY   WARM\tgentle\nwitty",
    "grim unheardof story, stale xyzzy scene",
    "clever https://example.org #moving \U0001f600",
    " ".join([*GOOD, *COMMON, *BAD, *COMMON]),
]
TOPICAL = [
    "the engine has a new gearbox",
    "we read about violin and storm today",
    "comet",
    "",
    UNKNOWN,
    "that this is",
    "COURT appeal; clause!",
    "oven flour oven flour bishop",
    "rockets orbits",
    " ".join(TOPICS.values()),
]
CASES = {
    "two classes": Case(
        "reviews.csv",
        table(("text", "label"), reviews(300, 0)),
        REVIEWED,
        test=table(("text", "label"), reviews(90, 1)),
    ),
    "many classes": Case(
        "topics.tsv",
        table(("body", "topic"), topics(420), "\t"),
        TOPICAL,
        reading="--text body --label topic",
    ),
    "labels": Case(
        "news.jsonl",
        several(260),
        [
            "the goal of a match",
            "bank price and a song drama",
            "goal stock play",
            "",
            UNKNOWN,
            "we read that",
            "TEAM Team team",
            "match match match bank",
            "some other thing, today",
            "goal match team bank stock price play song drama",
        ],
        "--task labels",
        kind="MultiLabelTextClassifier",
    ),
    "numbers": Case(
        "prices.csv",
        table(("text", "price"), prices(260)),
        [
            "a gold ring",
            "a tiny old wooden box",
            "large silver lamp with gold",
            "",
            UNKNOWN,
            "from the shop",
            "GOLD, gold; gold",
            "old old",
            "silver tiny unheardof",
            "a gold silver wooden old large tiny ring box lamp",
        ],
        "--task regression",
        reading="--label price",
        kind="TextRegressor",
    ),
    "grades": Case(
        "grades.csv",
        table(("text", "label"), grades(280)),
        [
            "awful and broken",
            "solid but slow",
            "superb perfect",
            "",
            UNKNOWN,
            "we read that",
            "BRILLIANT, nice!",
            "refund meh handy perfect",
            "plain unheardof thing",
            " ".join(word for words in GRADE_WORDS for word in words),
        ],
        f"--task ordinal --order {','.join(GRADES)}",
        kind="OrdinalTextClassifier",
    ),
    "Chinese": Case(
        "films.csv",
        table(("text", "label"), chinese(240)),
        [
            "这部电影非常精彩。",
            "我觉得无聊,音乐好看",
            "糟糕糟糕",
            "",
            UNKNOWN,
            "这部电影",
            "喜欢",
            "昨天看了 the film 真的失望!",
            "这不是那本书",
            "".join([*CHINESE_COMMON, *CHINESE["好"], *CHINESE["差"]]),
        ],
    ),
    "pairs": Case(
        "pairs.csv",
        table(("premise", "hypothesis", "label"), pairs(120)),
        [
            ("A man sleeps now.", "A man sleeps."),
            ("A woman runs now.", "My dog eats."),
            ("The child sings", "the CHILD sings!"),
            ("", "A man runs."),
            ("xyzzy", "qwrt!"),
            ("A man runs and runs and runs.", "runs"),
            ("My dog eats now.", "My dog sings."),
            ("now", "now"),
            ("A woman sleeps.", "Nobody sleeps."),
            ("the the the", "A woman eats."),
        ],
        "--num-steps 40 --batch-size 16 --cpu-devices 1 --model.hidden 8 --model.embedding-dim 6 "
        "--train.parallel single --train.eval-every 20 "
        "--train.optimizer.learning-rate 0.02 --train.no-progress",
        kind="PairClassifier",
        network=True,
    ),
    "tags": Case(
        "names.conll",
        sentences(120),
        [
            "John lives in New York",
            "Mary works in Rome.",
            "Émile",
            "",
            "xyzzy qwrt",
            "in in in",
            "ANNA LIVES IN PARIS",
            "John Mary Anna works in Paris Rome New York",
            "lives in",
            "The 2 men, in 1999, lived near New York!",
        ],
        "--num-steps 30 --batch-size 16 --max-len 8 --cpu-devices 1 --model.hidden 8 "
        "--model.embedding-dim 4 --model.filter-size 8 --model.num-heads 2 --model.num-layers 1 "
        "--train.parallel single --train.eval-every 15 --train.no-progress "
        "--train.optimizer.learning-rate 0.03",
        kind="Tagger",
        explained=(),
        network=True,
    ),
    "odd lines": Case("odd.txt", odd_lines(), REVIEWED, reading="--max-aside 0.1"),
}
LEXICONS = [name for name, case in CASES.items() if not case.network]
NETWORKS = [name for name, case in CASES.items() if case.network]
