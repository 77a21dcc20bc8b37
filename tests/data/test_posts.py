"""Tokens of posts, characters, and units of scripts without spaces, against plain searches."""

import itertools
import math
import pickle
import random
import unicodedata

import pytest

from gatedjax.data.text import _tokenize, _units
from gatedjax.data.text._tokenize import character_tokens
from gatedjax.data.text._units import Units, split_characters


def social_tokens(text, most=None):
    return tuple(_tokenize.social_tokens(text, most))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("@ann don’t miss #film!", "@ann don't miss #film !"),
        ("see (http://a.b/c?d=1). www.x.org/y, ok", "see ( http://a.b ) . www.x.org , ok"),
        ("http://müller.de/weg HTTPS://A.B:80/", "http://müller.de HTTPS://A.B:80"),
        ("mail a.b+c@d.org now", "mail a.b+c@d.org now"),
        ("a@ b# @ #", "a @ b # @ #"),
        ("R&amp;B &lt;3 &#39;x&#39; AT&T a&not b", "R & B < 3 ' x ' AT & T a & not b"),
        ("1,000.50 at 10:30, 90s", "1,000.50 at 10:30 , 90s"),
        ("rock'n'roll 'quoted' a_b C++", "rock'n'roll ' quoted ' a_b C + +"),
        ("a<br />b", "a b"),
        ("यह फ़िल्म cafe\u0301", "यह फ़िल्म café"),
        ("", ""),
        (" \n\t ", ""),
    ],
)
def test_links_names_and_words_of_posts(text, tokens):
    wanted = tuple(unicodedata.normalize("NFC", tokens).split())
    assert social_tokens(text) == wanted
    # The pattern for other characters gives the same tokens.
    assert social_tokens(f"{text} é") == (*wanted, "é")
    assert social_tokens(text, 2) == wanted[:2]


@pytest.mark.parametrize(
    "emoji",
    [
        "👍",
        "👍🏽",
        "👩‍👩‍👧",
        "🇩🇪",
        "❤️",
        "1️⃣",
        "🏳️‍🌈",
        "👩🏽‍🚀",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    ],
)
def test_an_emoji_sequence_is_a_single_token(emoji):
    assert social_tokens(f"so{emoji}{emoji} 12:30 {emoji}!") == (
        *("so", emoji, emoji, "12:30", emoji, "!"),
    )
    assert character_tokens(f"a {emoji}b") == ("a", emoji, "b")


LETTERS = "aAzZ09_ '’.,:#@!?&;<>/-\t\n\xa0éßİς\u0301\u20e3\ufe0f\u200d好電ดีá😀👍🏽🇩🇪ﬁœ…“Я"


def random_posts(count):
    """Texts of characters of many kinds, with the marks of posts."""
    rng = random.Random(11)
    for _ in range(count):
        # With a few different characters many texts lack a kind, such as marks or links.
        letters = rng.choices(LETTERS, k=rng.randrange(1, 12))
        words = ["http://a.b/c?d", "WWW.x.org", "a@b.c", "@ann", "1,000.5", "don't"]
        yield "".join(rng.choices([*letters, " ", rng.choice(words)], k=rng.randrange(1, 40)))


@pytest.mark.slow
def test_alternatives_that_a_text_cannot_contain_change_no_token(monkeypatch):
    texts = list(random_posts(3000))
    tokens = [social_tokens(text) for text in texts]
    whole = _tokenize._social(False, True, True, True, True)
    monkeypatch.setattr(_tokenize, "_social", lambda *has: whole)
    assert tokens == [social_tokens(text) for text in texts]


def test_two_flags_are_two_tokens_and_a_lone_joiner_is_none():
    assert social_tokens("🇩🇪🇫🇷") == ("🇩🇪", "🇫🇷")
    assert social_tokens("\u200d \ufe0f a") == ("a",)
    assert character_tokens("\u200d \ufe0f a") == ("a",)


def test_a_mixture_of_scripts_is_cut_where_the_script_changes():
    assert social_tokens("abc电影好看def 很好。ok") == (
        "abc",
        "电影好看",
        "def",
        "很好",
        "。",
        "ok",
    )
    assert social_tokens("http://t.cn/x我们 #话题 @小明") == (
        *("http://t.cn", "我们", "#话题", "@小明"),
    )
    assert social_tokens("ดีมาก ทดสอบ") == ("ดีมาก", "ทดสอบ")


def test_characters_have_no_spaces_and_keep_their_marks():
    assert character_tokens("a 电e\u0301") == ("a", "电", "é")
    assert character_tokens("हिन्दी") == tuple(split_characters("हिन्दी"))
    assert character_tokens("abc", 2) == character_tokens("ab" * 5000, 2) == ("a", "b")


def _best(run, units):
    """The probability of the best cut of a run, over all cuts."""
    scores = []
    for breaks in itertools.product((False, True), repeat=len(run) - 1):
        ends = [0, *(i + 1 for i, is_break in enumerate(breaks) if is_break), len(run)]
        parts = [run[a:b] for a, b in itertools.pairwise(ends)]
        probabilities = [
            units.counts.get(part, 0.5 if len(part) == 1 else 0) / units.total for part in parts
        ]
        scores.append((math.prod(probabilities), tuple(parts)))
    return max(score for score, _ in scores), {parts: score for score, parts in scores}


def test_a_cut_is_the_most_probable_of_all_cuts():
    rng = random.Random(0)
    words = ["电影", "好看", "不好看", "很", "不", "这部电影", "人"]
    texts = ["".join(rng.choices(words, k=4)) for _ in range(40)]
    units = Units.learn(texts)
    assert units is not None
    assert units == Units.learn(reversed(texts))
    for run in ("".join(rng.choices(words, k=3))[:8] for _ in range(30)):
        parts = units.cut(run)
        assert "".join(parts) == run
        best, scores = _best(run, units)
        assert scores[parts] == pytest.approx(best)
    assert "电影" in units.counts
    assert units.cut("猫狗") == ("猫", "狗")


def test_the_loop_for_pairs_cuts_like_the_loop_for_any_length():
    rng = random.Random(2)
    # Few letters with few counts have many cuts of the same probability.
    units = Units({"电": 4, "影": 2, "电影": 2, "影电": 4, "好": 1, "好电": 2}, 16)
    for _ in range(300):
        run = "".join(rng.choices("电影好看", k=rng.randrange(1, 12)))
        pairs = units.cut(run)
        units._longest_han = 4
        assert units._viterbi(run) == pairs
        units._longest_han = 2
    assert units._longest_han == max(len(unit) for unit in units.counts)


def test_learned_units_of_han_have_two_characters_and_stored_units_may_have_four():
    units = Units.learn(["不好看的电影院", "不好看カメラがいい", "ดีมาก"] * 4)
    assert units is not None
    assert max(len(unit) for unit in units.counts if min(unit) >= "\u4e00") == 2
    assert max(len(unit) for unit in units.counts if "\u30a0" <= unit[0] <= "\u30ff") > 2
    # Folders of models that were trained before have longer units.
    assert Units({"电影院": 6, "的": 4}, 20).cut("的电影院") == ("的", "电影院")


def test_a_unit_of_several_characters_occurs_three_times_and_each_unit_that_stays_twice():
    units = Units.learn(["电影好", "电影坏", "电影"])
    assert (units.counts, units.total) == ({"电影": 3}, 5)
    assert Units.learn(["电影好"] * 2).counts == dict.fromkeys("好影电", 2)


def test_units_cut_inside_tokens_and_leave_hashtags_whole():
    units = Units({"电影": 6, "好": 4}, 20)
    assert units.split(["abc电影好", "#电影好", "@电影好", "film", "好电影"]) == [
        *("abc", "电影", "好", "#电影好", "@电影好", "film", "好", "电影"),
    ]
    assert pickle.loads(pickle.dumps(units)) == units


def test_a_mark_is_never_cut_from_its_letter():
    units = Units.learn(["ดีมาก น้ำดี มากดี", "น้ำมาก"] * 3)
    assert units is not None
    for unit in units.counts:
        assert unicodedata.category(unit[0])[0] != "M", unit
    assert all(unicodedata.category(u[0])[0] != "M" for u in units.cut("น้ำดีมาก"))


def test_texts_without_such_scripts_give_no_units():
    assert Units.learn(["a dull film", "été", "한국어 영화", "好 看"]) is None
    assert Units.learn([]) is None


def test_long_data_are_sampled_evenly(monkeypatch):
    monkeypatch.setattr(_units, "_MOST", 40)
    texts = [f"{'电影' * 3} {'好看' * 2}" for _ in range(50)] + ["坏人坏人坏人"] * 50
    units = Units.learn(texts)
    assert units is not None
    assert any("坏" in unit for unit in units.counts)  # texts of the end count too
    assert any("电" in unit for unit in units.counts)
    assert units.total < 40


@pytest.mark.parametrize("counts", [{"": 1}, {"a": 0}, {"a": 1.5}, {"a": True}, {"a": -1}])
def test_units_of_a_damaged_folder_are_refused(counts):
    with pytest.raises(ValueError, match="units must be texts with counts above 0"):
        Units(counts, 3)
