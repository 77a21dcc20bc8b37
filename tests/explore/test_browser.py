"""The page in Debian's chromium: what a person sees is what the network says."""

import base64
import contextlib
import dataclasses
import re
import shutil
import threading
import time
import xml.etree.ElementTree
from urllib.parse import urlencode

import numpy as np
import pytest

import gatedjax
from gatedjax.explore import _sentences
from gatedjax.explore._engine import Explorer, open_model
from gatedjax.explore._offline import MOST_BYTES, offline_page, patterns_of, payload
from gatedjax.explore._sentences import Session, read_sentences
from gatedjax.explore._server import Server
from gatedjax.text.corpus._tokens import split_words
from gatedjax.text.models._translator import parameters_like
from gatedjax.text.sources._open import open_table
from tests.explore._models import TEXT, model, of_classes, pair, pure
from tests.explore.test_engine import ROWS, log_odds, with_classifier
from tests.text._runs import DOCUMENT, drawn, reader_run, translator_run

TOKENS = split_words(TEXT)
TWELVE = "a dull , slow film here and a bright <script> story"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-dev-shm-usage --disable-background-networking --disable-component-update "
    "--disable-sync --window-size=1000,900"
)
TOKEN = "t" * 22
WAIT = 120
TIGHT = 1e-5


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory, downloads):
    """A chromium without a window, with a profile of its own."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    made = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def explorer():
    return Explorer([model(), model("soft", seed=2)], ["gated", "soft"])


@pytest.fixture(scope="module")
def serve(explorer):
    """A function that starts the server, or starts it again; its `stop` stops it."""
    table = open_table(ROWS)
    session = Session(explorer, table, leaks=4)
    running = []

    def start(port=0):
        server = Server(lambda message: start.ask(message), port=port, token=TOKEN)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        running.append((server, thread))
        return server

    def stop():
        server, thread = running.pop()
        server.shutdown()
        thread.join()
        server.server_close()

    start.stop, start.session, start.ask = stop, session, session.ask
    yield start
    while running:
        stop()


@pytest.fixture(scope="module")
def address(serve):
    return serve().address


@pytest.fixture
def page(browser, address):
    """The page with the text in its address."""
    return opened(browser, f"{address}#text={'+'.join(TEXT.split())}")


def opened(browser, address):
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(address)
    ready(browser)
    return browser


def opened_file(browser, folder, content):
    """A page that needs no server."""
    (folder / "page.html").write_bytes(content)
    return opened(browser, (folder / "page.html").as_uri())


def until(browser, script, *args):
    """What a script returns as soon as it returns something."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if found := browser.execute_script(f"return {script}", *args):
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {script}; {browser.get_log('browser')}")


def ready(browser):
    until(browser, "document.querySelector('.gx')?.dataset.state === 'ready'")


def probabilities(browser, number=0):
    """Of the classes, as the page holds them."""
    ready(browser)
    rows = browser.execute_script(
        "return [...document.querySelectorAll('.gx-model')[arguments[0]]"
        ".querySelectorAll('[data-probability]')].map((row) => row.dataset.probability)",
        number,
    )
    return np.array(rows, np.float64)


def words(browser, number=0, value="word"):
    """The words of a model, or an expression of JavaScript for each `word`."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.gx-model')[arguments[0]]"
        f".querySelectorAll('.gx-word')].map((word) => {value})",
        number,
    )


def texts(browser, number=0, of="token"):
    """The tokens of a model, or other parts of its words, as the page shows them."""
    return words(browser, number, f"word.querySelector('.gx-{of}').innerText")


def gates(browser):
    """1 for every word of the first model that is shown as open."""
    ready(browser)
    return [float(gate == "open") for gate in words(browser, 0, "word.dataset.gate")]


def weighed(browser, number=0):
    """The effects of the words of a model, as the page holds them."""
    until(browser, "document.querySelector('.gx')?.dataset.effects === 'ready'")
    return list(map(float, words(browser, number, "word.dataset.effect")))


def shares(browser, selector):
    """The length of each bar as a share of its track, as the browser draws them."""
    # The bars move to their length, which takes a moment.
    time.sleep(0.3)
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((bar) =>"
        "bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)",
        selector,
    )


def put(browser, selector, value, event="input"):
    """Gives a field a value at once, as a person does."""
    browser.execute_script(
        "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
        "field.dispatchEvent(new Event(arguments[2]))",
        selector,
        value,
        event,
    )
    ready(browser)


def edited(browser, name, text):
    put(browser, f"[data-field={name}]", text)


def choose(browser, mode):
    put(browser, ".gx-controls select", mode, "change")


def slide(browser, name, value):
    put(browser, f"[data-for={name}] input", value)


def clean(browser):
    """No complaint of the browser, of the policy or of the program."""
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
def test_a_gate_that_is_forced_changes_what_is_predicted(page, explorer):
    made = explorer.models[0]
    own = gates(page)
    np.testing.assert_allclose(probabilities(page), pure(made, TOKENS, own)[0], atol=TIGHT)
    button = words(page)[1]
    assert button.get_attribute("aria-pressed") == "false"
    for then in (1 - own[1], own[1], own[1]):
        button.click()
        wanted = [*own[:1], then, *own[2:]]
        assert gates(page) == wanted
        np.testing.assert_allclose(probabilities(page), pure(made, TOKENS, wanted)[0], atol=TIGHT)
    assert button.get_attribute("data-forced") == "auto"
    clean(page)


@pytest.mark.slow
def test_forced_gates_stay_with_their_words(page, explorer):
    def forced():
        ready(page)
        return words(page, 0, "word.dataset.forced !== 'auto'")

    words(page)[1].click()
    ready(page)
    area = page.find_element("css selector", "textarea")
    area.send_keys(" old")
    assert forced()[1]
    page.execute_script("arguments[0].setSelectionRange(0, 0)", area)
    area.send_keys("here ")
    assert forced()[:4] == [False, False, True, False]
    edited(page, "text", "slow , old story")
    tokens = ("slow", ",", "old", "story")
    assert texts(page) == [*tokens]
    wanted = pure(explorer.models[0], tokens, gates(page))[0]
    np.testing.assert_allclose(probabilities(page), wanted, atol=TIGHT)
    # a second model, without gates, stands beside the first
    (read,) = explorer.models[1].read([(" ".join(tokens),)])
    np.testing.assert_allclose(probabilities(page, 1), read.probabilities, atol=TIGHT)
    assert words(page, 1, "word.tagName") == ["SPAN"] * len(tokens)
    edited(page, "text", "")
    assert "No word yet" in page.find_element("class name", "gx-notes").text
    edited(page, "text", "xyzzy plugh")
    assert "knows none of these words" in page.find_element("class name", "gx-notes").text
    assert texts(page, of="unknown")[0] == "?"
    # a text is never markup
    edited(page, "text", "<script>alert(1)</script> <img src=x onerror=alert(1)> & \u202eabc")
    assert texts(page)[:3] == ["<", "script", ">"]
    assert not page.find_elements("css selector", "main script, main img")
    clean(page)


@pytest.mark.slow
def test_the_keyboard_forces_and_moves(page):
    keys = pytest.importorskip("selenium.webdriver").Keys
    first = words(page)[0]
    page.execute_script("arguments[0].focus()", first)
    first.send_keys(keys.ARROW_RIGHT)
    second = page.switch_to.active_element
    assert second == words(page)[1]
    for key in (keys.SPACE, keys.ENTER):
        before = second.get_attribute("data-gate")
        second.send_keys(key)
        ready(page)
        assert second.get_attribute("aria-pressed") == "true"
        assert second.get_attribute("data-gate") != before
    label = second.get_attribute("aria-label")
    said = r"dull \S+: gate forced (open|closed), open with probability 0\.\d+, attention"
    assert re.match(said, label)
    second.send_keys(keys.END)
    assert page.switch_to.active_element == words(page)[-1]
    stops = page.execute_script(
        "return [...document.querySelectorAll('button.gx-word')].filter(b => b.tabIndex === 0)"
    )
    assert stops == [words(page)[-1]]


@pytest.mark.slow
def test_effects_are_those_of_the_engine_in_numbers_and_colours(page, explorer):
    state = {"text": TEXT}
    for is_forced in (False, True):
        if is_forced:
            words(page)[1].click()
            ready(page)
            state["forced"] = {"1": bool(gates(page)[1])}
        for number, wanted in enumerate(explorer.removal(state)["models"]):
            found = weighed(page, number)
            np.testing.assert_allclose(found, wanted["effects"], atol=TIGHT)
            near = [abs(value) < 5e-4 for value in found]
            shown = [
                "0.000" if zero else f"{value:+.3f}".replace("-", "\u2212")
                for value, zero in zip(found, near, strict=True)
            ]
            assert texts(page, number, "effect") == shown
            sides = words(page, number, "word.dataset.speaks")
            colours = words(page, number, "getComputedStyle(word).backgroundColor")
            for side, colour, value, zero in zip(sides, colours, found, near, strict=True):
                assert side == ("" if zero else "for" if value > 0 else "against")
                red, _, blue, *opacity = map(float, re.findall(r"[\d.]+", colour))
                if not zero:
                    assert (blue > red) == (value > 0)
                    strength = 0.45 * min(abs(value) / 0.5, 1) ** 0.5
                    assert opacity[0] == pytest.approx(strength, abs=0.005)
    clean(page)


@pytest.mark.slow
def test_numbers_stand_at_the_words_in_bars_and_in_the_table(page, explorer):
    weighed(page)
    page.execute_script("document.querySelector('.gx-model details').open = true")
    until(page, "document.querySelector('.gx-numbers tbody tr')")
    answer = explorer.answer({"text": TEXT})["models"][0]
    removed = explorer.removal({"text": TEXT})["models"][0]
    classes, uniform = explorer.models[0].classes, 1 / len(TOKENS)
    rows = page.execute_script(
        "return [...document.querySelectorAll('.gx-model:first-child .gx-numbers tbody tr')]"
        ".map((row) => [...row.querySelectorAll('th, td')].map((cell) => cell.innerText))"
    )
    assert [row[0] for row in rows] == [*TOKENS]
    shown = [[float(c.split()[0].replace("\u2212", "-")) for c in (r[1], *r[3:])] for r in rows]
    attention = np.array(answer["attention"])
    columns = (removed["effects"], answer["open"], answer["gates"], attention)
    np.testing.assert_allclose(np.array(shown)[:, :4], np.transpose(columns), atol=6e-4)
    np.testing.assert_allclose(np.array(shown)[:, 4], attention / uniform, atol=0.06)
    for row, word, best in zip(rows, words(page), removed["speaks_for"], strict=True):
        said = re.search(r"effect ([\u2212+\d.]+): speaks for (\w+)", word.get_attribute("title"))
        assert (said[1], said[2]) == (row[1], classes[best])
        assert said[0] in word.get_attribute("aria-label")
    bars = shares(page, ".gx-model:nth-child(1) .gx-classes .gx-track")
    np.testing.assert_allclose(bars, answer["probabilities"], atol=0.01)
    bars = shares(page, ".gx-model:nth-child(1) .gx-words .gx-attention")
    np.testing.assert_allclose(bars, attention / (attention + uniform), atol=0.03)
    key = page.find_element("css selector", ".gx-model .gx-key").text
    assert f"+ speaks for {classes[int(np.argmax(answer['probabilities']))]}" in key
    assert "uniform attention, 1 / 7" in key


@pytest.mark.slow
def test_nothing_is_cut_on_a_small_screen_and_nothing_moves(page):
    until(page, "document.querySelector('.gx-sentences tbody tr')")

    def frame(width):
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        return page.execute_script(
            "return [document.documentElement.scrollWidth - document.documentElement.clientWidth,"
            "...['.gx-curve', '.gx-list'].map((name) =>"
            "document.querySelector(name).getBoundingClientRect().top)]"
        )

    def places():
        return page.execute_script(
            "return [...document.querySelectorAll('.gx-word')].map((word) => {"
            "const { x, y, width, height } = word.getBoundingClientRect();"
            "return [x, y, width, height] })"
        )

    weighed(page)
    before = places()
    words(page)[1].click()
    weighed(page)
    assert places() == before
    page.execute_script("document.querySelector('.gx-model details').open = true")
    edited(page, "text", "a dull film " * 30)
    try:
        hidden, curve, table = frame(390)
        assert hidden == 0
        assert curve < table
        # a table that scrolls has the focus
        until(page, "document.querySelector('.gx-scroll[tabindex=\"0\"][aria-label]')")
        line, last = page.find_element("class name", "gx-words").rect, words(page)[-1].rect
        assert last["y"] + last["height"] <= line["y"] + line["height"]
        hidden, curve, table = frame(1600)
        assert (hidden, curve) == (0, table)
        until(page, "!document.querySelector('.gx-scroll[tabindex]')")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_a_text_from_right_to_left_is_in_its_order(page):
    keys = pytest.importorskip("selenium.webdriver").Keys

    def side():
        effect = words(page)[0].find_element("class name", "gx-effect")
        return effect.value_of_css_property("text-align")

    edited(page, "text", "\u05d4\u05e1\u05e8\u05d8 dull \u05d9\u05e4\u05d4")
    for number in range(2):
        rects = [word.rect for word in words(page, number)]
        lefts = [rect["x"] for rect in rects]
        assert lefts == sorted(lefts, reverse=True)
        assert (len(rects), len({rect["y"] for rect in rects})) == (3, 1)
    # The number of a word begins where the word begins, on the right.
    assert side() == "right"
    page.execute_script("arguments[0].focus()", words(page)[0])
    words(page)[0].send_keys(keys.ARROW_LEFT)
    assert page.switch_to.active_element == words(page)[1]
    edited(page, "text", "dull \u05d9\u05e4\u05d4")
    assert words(page)[0].rect["x"] < words(page)[1].rect["x"]
    assert side() == "left"
    clean(page)


@pytest.mark.slow
def test_modes_and_settings(page, explorer):
    made, is_open = explorer.models[0], [1.0] * len(TOKENS)
    likely = explorer.answer({"text": TEXT})["models"][0]["open"]
    slide(page, "threshold", 0.6)
    assert gates(page) == [float(p > 0.6) for p in likely] or max(likely) <= 0.6
    choose(page, "density")
    slide(page, "density", 0.3)
    assert sum(gates(page)) == 2
    choose(page, "open")
    assert gates(page) == is_open
    np.testing.assert_allclose(probabilities(page), pure(made, TOKENS, is_open)[0], atol=TIGHT)
    choose(page, "expected")
    expected = pure(made, TOKENS, likely, soft=True)[0]
    np.testing.assert_allclose(probabilities(page), expected, atol=TIGHT)
    assert words(page)[0].get_attribute("data-gate") == "soft"
    choose(page, "sample")
    drawn = set()
    for _ in range(8):
        drawn.add(tuple(gates(page)))
        page.find_element("css selector", ".gx-seed button").click()
    assert len(drawn) > 1
    clean(page)


@pytest.mark.slow
def test_of_thirty_quick_edits_the_last_one_is_shown(page, explorer, serve):
    slow = []

    def ask(message):
        # an early question takes longer than later ones
        slow.append(message)
        time.sleep(0.2 if len(slow) < 3 else 0)
        return serve.session.ask(message)

    serve.ask = ask
    given = [" ".join(["dull", *["film"] * (n % 7), "warm"]) for n in range(29)] + ["old story now"]
    try:
        page.execute_script(
            "const t = document.querySelector('textarea'); for (const text of arguments[0]) {"
            "t.value = text; t.dispatchEvent(new Event('input')) }",
            given,
        )
        area = page.find_element("css selector", "textarea")
        for letter in " here and there":
            area.send_keys(letter)
        ready(page)
    finally:
        serve.ask = serve.session.ask
    tokens = ("old", "story", "now", "here", "and", "there")
    assert texts(page) == [*tokens]
    wanted = pure(explorer.models[0], tokens, gates(page))[0]
    np.testing.assert_allclose(probabilities(page), wanted, atol=TIGHT)
    assert len(slow) < 40


@pytest.mark.slow
def test_a_link_shows_exactly_this_state(page, browser):
    choose(page, "density")
    slide(page, "density", 0.4)
    words(page)[3].click()
    ready(page)
    wanted = probabilities(page)
    until(page, "location.hash.includes('forced=3')")
    link = page.current_url
    again = opened(browser, link)
    np.testing.assert_array_equal(probabilities(again), wanted)
    assert words(again)[3].get_attribute("data-forced") != "auto"
    assert "mode=density" in link
    pressed(again, "Copy link")
    until(again, "document.querySelector('.gx-status').textContent.startsWith('The link is')")
    # of a damaged link it shows what it can
    damaged = "#text=a+film&mode=x&threshold=9&seed=-1&forced=1o.zz.99999999o.%00"
    page = opened(browser, f"{link.partition('#')[0]}{damaged}")
    assert words(page)[1].get_attribute("data-forced") == "open"
    assert len(words(page)) == 2


@pytest.fixture(scope="module")
def lexicon():
    """A lexicon of the classes of the networks, which reads four words and "film"."""
    ends = ("here", "now", "old", "again", "today", "at home")
    texts = [
        (f"the {word} film {end}", label)
        for label, words in {"good": ("bright", "warm"), "bad": ("dull", "slow")}.items()
        for word in words
        for end in ends
    ]
    made = gatedjax.TextClassifier(share=1.0).fit(*zip(*texts, strict=True)).model_
    is_read = np.isin(made.lexicon.words, ["bright", "warm", "dull", "slow", "film"])
    closed = dataclasses.replace(made.lexicon, is_read=is_read, threshold=1e9)
    return dataclasses.replace(made, lexicon=closed)


MIXED = "the dull film was bright"


@pytest.fixture
def mixed(browser, lexicon):
    """A lexicon beside a network, with labelled sentences; and what answers the page."""
    shown = Explorer([lexicon, model()], ["lexicon", "network"])
    rows = [*ROWS, (MIXED, "good"), (MIXED, "bad")]
    session = Session(shown, open_table(rows), leaks=0)
    with answered(session.ask) as address:
        page = opened(browser, f"{address}#text={'+'.join(MIXED.split())}")
        until(page, "document.querySelector('.gx-sentences tbody tr')")
        yield page, session


def listed(page):
    """The texts of the list of sentences."""
    return [cell.get_attribute("title") for cell in page.find_elements("class name", "gx-load")]


def press(page, node):
    page.execute_script("arguments[0].click()", node)
    ready(page)


@pytest.mark.slow
def test_a_word_of_a_lexicon_is_switched_off_and_on(mixed):
    page, session = mixed
    state = {"do": "answer", "text": MIXED}
    whole, network = session.ask(state)["models"]
    line = whole["lines"][0]
    assert words(page, 0, "word.tagName === 'BUTTON'")[:5] == line["read"]
    place = line["read"].index(True)
    for off in ([line["tokens"][place]], []):
        press(page, words(page)[place])
        one, other = session.ask({**state, "off": off})["models"]
        wanted = np.array(one["probabilities"])[one["order"]]
        np.testing.assert_allclose(probabilities(page), wanted, atol=TIGHT)
        np.testing.assert_allclose(probabilities(page, 1), other["probabilities"], atol=TIGHT)
        word = words(page)[place]
        assert word.get_attribute("aria-pressed") == ("true" if off else "false")
        assert word.get_attribute("data-gate") == ("closed" if off else "open")
        verdict = page.find_element("class name", "gx-verdict").text
        assert ("instead of" in verdict) == bool(off)
        assert verdict.startswith(one["title"])
    assert other == network
    press(page, words(page)[place])
    until(page, "location.hash.includes('off=')")
    again = opened(page, page.current_url)
    assert words(again)[place].get_attribute("aria-pressed") == "true"
    press(page, page.find_element("xpath", "//button[text()='Switch all words on']"))
    assert "off=" not in until(page, "location.hash.includes('off=') ? '' : location.hash")
    clean(page)


@pytest.mark.slow
def test_an_emptied_text_clears_the_panels(mixed):
    page, _ = mixed
    press(page, page.find_element("css selector", ".gx-board button.gx-word"))
    assert page.find_element("class name", "gx-decided").is_displayed()
    edited(page, "text", "")
    assert "No word yet" in page.find_element("class name", "gx-notes").text
    articles = page.find_elements("css selector", ".gx-model")
    assert [article.is_displayed() for article in articles] == [False, False]
    assert not page.find_element("class name", "gx-decided").is_displayed()
    edited(page, "text", MIXED)
    assert [article.is_displayed() for article in articles] == [True, True]
    assert not page.find_elements("css selector", "[aria-pressed=true]")
    clean(page)


@pytest.mark.slow
def test_one_mark_for_a_word_that_is_not_read(mixed):
    page, session = mixed
    state = {"do": "answer", "text": MIXED, "forced": {"1": False}}
    first, second = session.ask(state)["models"]
    while words(page, 1)[1].get_attribute("data-forced") != "closed":
        press(page, words(page, 1)[1])
    line = "getComputedStyle(word.querySelector('.gx-token')).textDecorationLine"
    for number, read in ((0, first["lines"][0]["read"]), (1, second["read"])):
        struck = words(page, number, f"{line}.includes('line-through')")[: len(read)]
        assert struck == [not is_read for is_read in read]
        assert False in read
        key = page.find_elements("css selector", ".gx-model .gx-key")[number].text
        assert "Struck through: not read" in key


@pytest.mark.slow
def test_sentences_are_filtered(mixed):
    page, session = mixed
    rows = session.ask({"do": "sentences"})["rows"]
    ordered = sorted(rows, key=lambda row: -row["error"])

    assert listed(page) == [row["text"] for row in ordered[:20]]
    page.find_element("xpath", "//button[text()='Next']").click()
    assert listed(page) == [row["text"] for row in ordered[20:]] != []
    for name in ("label", "predicted"):
        put(page, f"[data-filter={name}]", "=bad", "change")
        assert listed(page) == [row["text"] for row in ordered if row[name] == "bad"] != []
        put(page, f"[data-filter={name}]", "", "change")
    wrong, decides = page.find_elements("css selector", ".gx-list input[type=checkbox]")
    wrong.click()
    wanted = [row["text"] for row in ordered if row["label"] != row["predicted"]]
    assert listed(page) == wanted
    assert wanted.count(MIXED) == 1
    wrong.click()
    page.find_element("css selector", "[data-filter=word]").send_keys("bright")
    until(page, "document.querySelector('.gx-deciding').textContent")
    found = session.ask({"do": "word", "word": "bright"})
    assert listed(page) == [row["text"] for row in ordered if rows.index(row) in found["has"]]
    assert page.find_element("class name", "gx-deciding").text == (
        f"\u201cbright\u201d is in {len(found['has'])} sentences, and lexicon predicts another "
        f"class for {len(found['decided'])} of them when the word is taken out."
    )
    decides.click()
    assert len(listed(page)) == len(found["decided"])
    decides.click()
    # the button at a word that is switched off asks the same
    tokens = session.ask({"do": "answer", "text": MIXED})["models"][0]["lines"][0]["tokens"]
    decided = {token: session.ask({"do": "word", "word": token})["decided"] for token in tokens}
    word = max(tokens, key=lambda token: len(decided[token]))
    press(page, words(page)[tokens.index(word)])
    button = page.find_element("class name", "gx-decided")
    assert button.text == f"Sentences that \u201c{word}\u201d decides"
    press(page, button)
    until(page, f"document.querySelector('.gx-deciding').textContent.includes('{word}')")
    assert {rows[i]["text"] for i in decided[word]} == set(listed(page)) != set()
    clean(page)


@pytest.mark.slow
def test_a_page_of_a_lexicon_without_a_server(browser, lexicon, tmp_path):
    shown = Explorer([lexicon], ["lexicon"])
    table = open_table([*ROWS, (MIXED, "good"), ("the dull film", "good")])
    page = opened_file(browser, tmp_path, offline_page(shown, "", table))
    until(page, "document.querySelector('.gx-sentences tbody tr')")
    ready(page)
    sentences = read_sentences(shown, table)
    worst = max(sentences.rows, key=lambda row: row["error"])
    area = page.find_element("css selector", "textarea")
    assert (area.get_attribute("value"), area.get_attribute("readonly")) == (worst["text"], "true")
    link = page.find_elements("css selector", ".gx-load")[5]
    text = link.get_attribute("title")
    press(page, link)
    (one,) = shown.answer({"text": text})["models"]
    wanted = np.array(one["probabilities"])[one["order"]]
    np.testing.assert_allclose(probabilities(page), wanted, atol=TIGHT)
    assert area.get_attribute("value") == text
    place = one["lines"][0]["read"].index(True)
    press(page, words(page)[place])
    assert not page.find_elements("css selector", "[aria-pressed=true]")
    press(page, page.find_element("class name", "gx-decided"))
    until(page, "document.querySelector('.gx-deciding').textContent")
    decided = sentences.find(one["lines"][0]["tokens"][place])["decided"]
    assert sorted(listed(page)) == sorted(sentences.rows[i]["text"] for i in decided)
    clean(page)


@pytest.mark.slow
def test_effects_near_one_are_in_log_odds_without_a_server(browser, tmp_path):
    made = model()
    (whole,) = log_odds(made, [TOKENS])
    shown = Explorer([with_classifier(made, scale=15 / abs(whole))], ["sure"])
    wanted = shown.removal({"text": TEXT})["models"][0]
    assert wanted["unit"] == "log-odds"
    page = opened_file(browser, tmp_path, offline_page(shown, TEXT))
    np.testing.assert_allclose(weighed(page), wanted["effects"], atol=1e-3)
    assert "the log-odds of" in page.find_element("class name", "gx-key").text
    assert "log-odds: speaks for" in words(page)[0].get_attribute("title")
    clean(page)


@pytest.mark.slow
def test_labelled_sentences_are_browsed(page):
    until(page, "document.querySelector('.gx-sentences tbody tr')")
    rows = page.find_elements("css selector", ".gx-sentences tbody tr")
    errors = [float(row.find_elements("tag name", "td")[3].text) for row in rows]
    assert errors == sorted(errors, reverse=True)
    assert "measured for the first 4" in page.find_element("css selector", ".gx-set").text
    assert (
        "all words that are not read are deleted" in page.find_element("class name", "gx-leak").text
    )
    said = page.find_element("class name", "gx-point").text
    slide(page, "threshold", 0)
    point = page.find_element("class name", "gx-point").text
    assert "with a share of 1.000 read" in point.split(". ")[0]
    assert page.find_element("class name", "gx-point").text != said
    choose(page, "sample")
    rings = page.find_elements("class name", "gx-ring")
    assert [ring.get_attribute("visibility") for ring in rings] == ["hidden", "visible"]
    text = rows[0].find_element("tag name", "button").text
    page.execute_script("arguments[0].click()", rows[0].find_element("tag name", "button"))
    ready(page)
    assert page.find_element("css selector", "textarea").get_attribute("value") == text
    clean(page)


@pytest.mark.slow
def test_a_page_opens_with_the_worst_labelled_sentence(browser, address, serve):
    page = opened(browser, address)
    session = serve.session
    until(page, "document.querySelector('.gx-origin').textContent.includes('largest error')")
    worst = max(session.ask({"do": "sentences"})["rows"], key=lambda row: row["error"])
    ready(page)
    assert page.find_element("css selector", "textarea").get_attribute("value") == worst["text"]
    assert f"Label: {worst['label']}" in page.find_element("class name", "gx-origin").text
    (tag,) = page.find_elements("css selector", ".gx-model:first-child .gx-tag")
    row = tag.find_element("xpath", "..")
    assert row.find_element("tag name", "bdi").text == worst["label"]
    assert page.title.startswith("Which words does the prediction rest on?")
    clean(page)


@pytest.mark.slow
def test_a_page_opens_with_the_first_sentence_and_leaves_typed_texts(
    browser, explorer, monkeypatch
):
    start = threading.Event()

    def late(explorer, table, leaks):
        start.wait(WAIT)
        return read_sentences(explorer, table, leaks=leaks)

    monkeypatch.setattr(_sentences, "read_sentences", late)
    with answered(Session(explorer, open_table(ROWS), leaks=0).ask) as address:
        page = opened(browser, address)
        area = page.find_element("css selector", "textarea")
        assert area.get_attribute("value") == ROWS[0][0]
        assert "The first sentence of" in page.find_element("class name", "gx-origin").text
        area.clear()
        # as the person's own keys do, and `clear` does not
        page.execute_script("arguments[0].dispatchEvent(new Event('input'))", area)
        area.send_keys("slow film")
        ready(page)
        start.set()
        until(page, "document.querySelector('.gx-sentences tbody tr')")
        ready(page)
        assert area.get_attribute("value") == "slow film"
        assert page.find_element("class name", "gx-origin").text == ""


def pressed(browser, text):
    button = browser.find_element("xpath", f"//button[text()='{text}']")
    browser.execute_script("arguments[0].click()", button)
    return browser.find_element("class name", "gx-status").text


@pytest.mark.slow
def test_a_picture_is_saved_as_it_is_seen(page, downloads):
    words(page)[1].click()
    ready(page)
    assert pressed(page, "Save picture") == "The picture is saved as gates.svg."
    end = time.monotonic() + WAIT
    while not (downloads / "gates.svg").exists() and time.monotonic() < end:
        time.sleep(0.05)
    root = xml.etree.ElementTree.parse(downloads / "gates.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    drawn = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert " ".join(TOKENS) in " ".join(word for word in drawn if word in TOKENS)
    assert {node.tag.split("}")[1] for node in root.iter()} == {"svg", "rect", "text"}
    clean(page)


@pytest.mark.slow
def test_a_server_that_stops_and_comes_back(browser, serve):
    server = serve()
    page = opened(browser, f"{server.address}#text=a+film")
    serve.stop()
    page.find_element("css selector", "textarea").send_keys(" here")
    until(page, "document.querySelector('.gx-status').textContent.includes('has stopped')")
    serve(server.server_port)
    ready(page)
    assert len(words(page)) == 3
    assert "has stopped" not in page.find_element("class name", "gx-status").text
    serve.stop()


def served(shown):
    """The address of a page of these models."""
    return answered(Session(shown).ask)


@contextlib.contextmanager
def answered(ask):
    """The address of a page whose messages `ask` answers."""
    with Server(ask, token=TOKEN) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.address
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_layers_are_shown_when_they_are_opened(browser):
    shown = Explorer([model("ssan"), model("agt")], ["ssan", "agt"])
    with served(shown) as address:
        page = opened(browser, f"{address}#text={'+'.join(TEXT.split())}")
        assert not page.find_elements("css selector", ".gx-cell")
        for summary in page.find_elements("xpath", "//summary[text()='Layer by layer']"):
            page.execute_script("arguments[0].click()", summary)
        until(page, "document.querySelectorAll('.gx-pairs tbody tr').length === 14")
    pairs, values = cells(page, "innerText")
    ssan, agt = shown.layers({"text": TEXT})["models"]
    assert pairs == [["\u25cf" if one else "" for one in row] for row in ssan[0]["selected"]]
    assert values == [[f"{layer['values'][i]:.3f}" for layer in agt] for i in range(len(TOKENS))]
    assert not page.find_elements("css selector", ".gx-controls label")
    clean(page)


def cells(browser, value="title"):
    """A property of the cells of each grid, row by row."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.gx-pairs')].map((grid) =>"
        "[...grid.querySelectorAll('tbody tr')].map((row) =>"
        "[...row.querySelectorAll('.gx-cell')].map((cell) => cell[arguments[0]])))",
        value,
    )


def values_of(browser, number=0):
    """The numbers at the words of a line."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.gx-line-of')[arguments[0]]"
        ".querySelectorAll('.gx-word')].map((word) => Number(word.dataset.value))",
        number,
    )


@pytest.mark.slow
def test_a_question_to_a_reader(browser, tmp_path):
    shown = Explorer([open_model(reader_run(tmp_path / "run"))], ["reader"])
    state = {"text": DOCUMENT, "question": "XXXXX saw the house.", "candidates": "Anna\nEmil"}

    def check(of):
        (one,) = shown.answer(state)["models"]
        wanted = sorted(one["probabilities"], reverse=True)
        np.testing.assert_allclose(probabilities(page), wanted, atol=TIGHT)
        hop, last = one["lines"]
        wanted = hop["values"][hop["of"].index(of)]
        np.testing.assert_allclose(values_of(page, 0), wanted, atol=TIGHT)
        np.testing.assert_allclose(values_of(page, 1), last["values"], atol=TIGHT)

    with served(shown) as address:
        page = opened(browser, f"{address}#{urlencode(state)}")
        areas = page.find_elements("css selector", "textarea")
        assert [area.get_attribute("value") for area in areas] == [*state.values()]
        check("@placeholder")
        put(page, ".gx-board select", 3, "change")
        check("the")
        # the word that was chosen stays, and the model has run again
        state["question"] = "Then XXXXX saw the <b>garden</b>."
        edited(page, "question", state["question"])
        check("the")
        until(page, "location.hash.includes('garden')")
        edited(page, "candidates", "Bob")
        assert "letter by letter" in page.find_element("class name", "gx-notes").text
        assert not page.find_element("class name", "gx-board").is_displayed()
        clean(page)


@pytest.mark.slow
def test_parts_for_a_chosen_label(browser):
    rows = [
        (f"{x} {y} {z}", x.split()) for x in ("a", "b", "a b", "") for y in "cde" for z in "fgh"
    ]
    made = gatedjax.MultiLabelTextClassifier.train(rows, share=0.5).model_
    shown = Explorer([made], ["labels"])
    with served(shown) as address:
        page = opened(browser, f"{address}#text=b+a+c")
        (one,) = shown.answer({"text": "b a c"})["models"]
        wanted = np.array(one["probabilities"])[one["order"]]
        np.testing.assert_allclose(probabilities(page), wanted)
        best = page.find_elements("css selector", ".gx-best")
        assert len(best) == len(one["best"])
        assert best[0].text.endswith(one["details"][one["best"][0]])
        line = one["lines"][0]
        np.testing.assert_allclose(values_of(page), line["values"][one["chosen"]])
        other = 1 - one["chosen"]
        put(page, ".gx-board select", other, "change")
        np.testing.assert_allclose(values_of(page), line["values"][other])
        assert line["totals"][other] in page.find_element("class name", "gx-line-of").text
        clean(page)


@pytest.mark.slow
def test_a_pair_and_the_words_it_selects(browser):
    shown = Explorer([pair("ssan"), pair("san", seed=2)], ["ssan", "san"])
    state = {"text": "a dull film", "hypothesis": "the film here is slow"}
    with served(shown) as address:
        page = opened(browser, f"{address}#text=a+dull+film")
        assert "second text has no word" in page.find_element("class name", "gx-notes").text
        edited(page, "hypothesis", state["hypothesis"])
        for number, one in enumerate(shown.answer(state)["models"]):
            wanted = sorted(one["probabilities"], reverse=True)
            np.testing.assert_allclose(probabilities(page, number), wanted, atol=TIGHT)
        until(page, "document.querySelectorAll('.gx-pairs tbody tr').length === 6")
        until(page, "document.querySelector('.gx').dataset.effects === 'ready'")
        for number, effects in enumerate(shown.removal(state)["models"]):
            found = words(page, number, "Number(word.dataset.value)")
            np.testing.assert_allclose(found, np.concatenate(effects["lines"]), atol=TIGHT)
        layers = shown.layers(state)["models"][0]
        marks = [["\u25cf" if one else "" for one in row] for row in layers[0]["selected"]]
        assert cells(page, "textContent")[0] == marks
        clean(page)


@pytest.mark.slow
def test_a_translation_and_its_alignment(browser, tmp_path):
    pytest.importorskip("tokenizers")
    made = open_model(translator_run(tmp_path / "run"))
    made = dataclasses.replace(made, params=drawn(parameters_like(made.model), 22))
    shown = Explorer([made], ["translator"])
    with served(shown) as address:
        page = opened(browser, f"{address}#text=A+dog+runs.")
        for text in ("A dog runs.", "A cat sits."):
            if text != "A dog runs.":
                edited(page, "text", text)
            (one,) = shown.answer({"text": text})["models"]
            assert page.find_element("css selector", ".gx-verdict strong").text == one["title"]
            (alignment, *_) = shown.layers({"text": text})["models"][0]
            columns = alignment["columns"]
            titles = [
                [f"{row} \u2192 {name}: {value:.3f}" for name, value in zip(
                    columns, values, strict=True)]
                for row, values in zip(alignment["rows"], alignment["pairs"], strict=True)
            ]  # fmt: skip
            head = "document.querySelector('.gx-pairs thead')?.textContent"
            until(page, f"{head}.includes('{columns[1]}')")
            assert cells(page)[0] == titles
        assert len(page.find_elements("css selector", ".gx-layers option")) == 5
        # the matrix is in the picture, its columns' words upright
        drawn_texts = page.execute_script(
            "return import(location.pathname + 'explorer.js').then((module) =>"
            "[...module.toSvg(document.querySelector('.gx-models')).querySelectorAll('text')]"
            ".map((text) => [text.textContent, text.getAttribute('transform') !== null]))"
        )
        assert ["cat", True] in drawn_texts
        assert [one["title"].split()[0], False] in drawn_texts
        clean(page)


@pytest.mark.slow
def test_a_page_of_many_classes_has_effects_if_they_fit(browser, tmp_path):
    shown, twelve = Explorer([of_classes(20)], ["many"]), "a dull film " * 4
    content = offline_page(shown, twelve)
    assert 300_000 < len(content) < MOST_BYTES
    page = opened_file(browser, tmp_path, offline_page(shown, TEXT))
    wanted = shown.removal({"text": TEXT})["models"][0]
    # The probability of the last class is 1 minus 19 rounded probabilities.
    np.testing.assert_allclose(weighed(page), wanted["effects"], atol=20 * 0.5 / 65535)
    page = opened_file(browser, tmp_path, content)
    until(page, "document.querySelector('.gx').dataset.effects === 'ready'")
    assert "too large" in page.find_element("class name", "gx-effect-note").text
    assert set(texts(page, of="effect")) == {"\u2013"}
    clean(page)
    with pytest.raises(ValueError, match=r"at most 1,000 kB, got 1,\d\d\d: .* 50 classes"):
        offline_page(Explorer([of_classes(50)], ["more"]), twelve)


def test_the_data_of_a_page_are_those_of_the_network(explorer):
    data = payload(explorer, TEXT)
    assert data["about"]["modes"] == ["threshold", "density", "open"]
    assert not any(made["layered"] for made in data["about"]["models"])
    ratios = np.frombuffer(base64.b64decode(data["models"][0]["probabilities"]), "<f4")
    shares = np.frombuffer(base64.b64decode(data["models"][0]["attention"]), "<u2") / 65535
    patterns = patterns_of(len(TOKENS))
    assert patterns.shape == (128, 7)
    assert patterns[5].tolist() == [1, 0, 1, 0, 0, 0, 0]
    for number in (0, 1, 77, 127):
        wanted, attention = pure(explorer.models[0], TOKENS, patterns[number])
        np.testing.assert_allclose(ratios[number], np.log(wanted[0] / wanted[1]), atol=TIGHT)
        np.testing.assert_allclose(shares.reshape(-1, 7)[number], attention, atol=2e-5)
    # each of two words without the other, with a shut gate and with an open one
    removed = payload(explorer, "dull film")["models"][0]["removed"]
    ratios = np.frombuffer(base64.b64decode(removed["probabilities"]), "<f4").reshape(2, 2)
    for word, ratio in zip(("film", "dull"), ratios[:, 1], strict=True):
        wanted, _ = pure(explorer.models[0], (word,), [1.0])
        np.testing.assert_allclose(ratio, np.log(wanted[0] / wanted[1]), atol=TIGHT)


@pytest.mark.slow
def test_a_page_without_a_server(browser, explorer, tmp_path):
    tokens = split_words(TWELVE)[:12]
    text = " ".join(tokens)
    content = offline_page(explorer, text)
    assert len(content) < 600_000
    page = opened_file(browser, tmp_path, content)
    assert page.find_element("class name", "gx-label").text == "Sentence (read-only)"
    assert page.find_element("css selector", "textarea").get_attribute("readonly")
    assert not page.find_elements("xpath", "//button[text()='Copy link']")
    markup = page.execute_script("return document.querySelector('.gx').outerHTML")
    assert "file:" not in markup
    assert str(tmp_path) not in markup
    assert gatedjax.__version__ in page.find_element("class name", "gx-foot").text
    made = explorer.models[0]
    for place in (None, 0, 5, 11, 5):
        if place is not None:
            words(page)[place].click()
        wanted = pure(made, tokens, gates(page))[0]
        np.testing.assert_allclose(probabilities(page), wanted, atol=TIGHT)
    (read,) = explorer.models[1].read_tokens([(tokens,)])
    np.testing.assert_allclose(probabilities(page, 1), read.probabilities, atol=TIGHT)
    asked = {"text": text, "mode": "density", "density": 0.25}
    choose(page, "density")
    slide(page, "density", 0.25)
    page.find_element("xpath", "//button[text()='Release all gates']").click()
    wanted = explorer.answer(asked)["models"][0]
    assert gates(page) == wanted["gates"]
    np.testing.assert_allclose(probabilities(page), wanted["probabilities"], atol=TIGHT)
    modes = page.find_elements("css selector", ".gx-controls select option")
    assert [mode.get_attribute("value") for mode in modes] == ["threshold", "density", "open"]
    for number, effects in enumerate(explorer.removal(asked)["models"]):
        np.testing.assert_allclose(weighed(page, number), effects["effects"], atol=4e-5)
    words(page)[2].click()
    ready(page)
    asked["forced"] = {"2": bool(gates(page)[2])}
    effects = explorer.removal(asked)["models"][0]["effects"]
    np.testing.assert_allclose(weighed(page), effects, atol=4e-5)
    clean(page)


MOUNT = """
const [state, done] = arguments;
window.commands = [];
// the search for a shortcut that JupyterLab does, from the focused element upwards
document.addEventListener("keydown", (event) => {
  let node = event.target;
  while (node && !node.hasAttribute("data-lm-suppress-shortcuts")) {
    if (node.matches("body :focus")) window.commands.push(event.key);
    node = node.parentElement;
  }
}, true);
const el = document.createElement("div");
document.body.replaceChildren(el);
const page = location.pathname;
const headers = { "Content-Type": "application/json" };
const ask = (message) =>
  fetch(page + "ask", { method: "POST", headers, body: JSON.stringify(message) })
    .then((answer) => answer.json());
let hear;
const model = {
  get: () => state, set: (name, value) => { window.kept = value; }, save_changes: () => {},
  off: () => {}, on: (_, callback) => { hear = callback; },
  send: ({ id, message }) => ask(message).then((answer) => hear({ id, answer })),
};
import(page + "explorer.js").then((module) => {
  window.end = module.default.render({ model, el });
  done();
});
"""


@pytest.mark.slow
def test_the_module_in_a_notebook_and_the_keys_of_jupyterlab(browser, address, serve):
    """With a model as anywidget hands it to the page, and a server in place of the kernel."""
    keys = pytest.importorskip("selenium.webdriver").Keys
    browser.get(address)
    ready(browser)
    browser.execute_async_script(MOUNT, {"text": TEXT})
    until(browser, "document.querySelector('.gx-word')")
    wanted = serve.session.ask({"do": "answer", "text": TEXT})["models"][0]["probabilities"]
    np.testing.assert_allclose(probabilities(browser), wanted, atol=TIGHT)
    assert len(words(browser)) == len(TOKENS)
    wanted = serve.session.ask({"do": "removal", "text": TEXT})["models"][0]["effects"]
    np.testing.assert_allclose(weighed(browser), wanted, atol=TIGHT)
    assert browser.execute_script("return window.kept.text") == TEXT
    assert not browser.find_elements("xpath", "//button[text()='Copy link']")
    for place in ("button.gx-word", "textarea", "select", "input[type=range]", "summary"):
        node = browser.find_element("css selector", place)
        browser.execute_script("arguments[0].focus()", node)
        for key in ("b", keys.ARROW_DOWN, keys.ENTER):
            browser.switch_to.active_element.send_keys(key)
    assert browser.execute_script("return window.commands") == []
    browser.switch_to.active_element.send_keys(keys.CONTROL, "s")
    assert browser.execute_script("return window.commands").pop() == "s"
    # Without the page the keys are JupyterLab's again.
    browser.execute_script(
        "window.end(); window.commands = [];"
        "const button = document.body.appendChild(document.createElement('button')); button.focus()"
    )
    browser.switch_to.active_element.send_keys("b")
    assert browser.execute_script("return window.commands") == ["b"]
