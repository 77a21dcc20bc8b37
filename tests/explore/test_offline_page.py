"""A page for one text, and the sentences of a session, whatever they hold and whoever asks."""

import json
import re
import threading
import time

from gatedjax.explore import _sentences
from gatedjax.explore._engine import Explorer
from gatedjax.explore._offline import offline_page
from tests.explore._models import model


def test_a_text_cannot_end_the_script_that_holds_it():
    text = "a </script> <!-- film"
    page = offline_page(Explorer([model()], ["one"]), text).decode()
    data = re.search(r'id="gatedjax-data">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data)["text"] == text
    assert "<!--" not in data


def test_sentences_are_read_once_however_many_ask(monkeypatch):
    """Two tabs of the page ask at the same time; the second must wait for the lock."""
    reads, start = [], threading.Barrier(4)

    class Slow(threading.Thread):
        """A thread that takes a while to make, in which others would see that there is none."""

        def __init__(self, *args, **options):
            time.sleep(0.05)
            super().__init__(*args, **options)

    def ask():
        start.wait()
        session.ask({"do": "sentences"})

    askers = [threading.Thread(target=ask) for _ in range(4)]
    monkeypatch.setattr(_sentences.threading, "Thread", Slow)
    monkeypatch.setattr(_sentences, "read_sentences", lambda *args, **options: reads.append(1))
    session = _sentences.Session(None, [])
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    session._thread.join()
    assert len(reads) == 1
