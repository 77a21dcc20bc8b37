"""The questions of a page and their answers, for the server and the notebook."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from gatedjax._utils.types import Json
from gatedjax.explore._engine import Explorer
from gatedjax.explore._sentences import Sentences


class Session:
    """A session of a page, which answers the messages of its script; see `ask`."""

    def __init__(
        self,
        explorer: Explorer,
        sentences: Callable[[], Sentences] | None = None,  # runs in a thread, at the first question
        first: Callable[[], Json | None] | None = None,  # the sentence with which the page opens
    ) -> None:
        self._explorer, self._read, self._first = explorer, sentences, first
        self._found: Sentences | None = None
        self._failed: str | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def ask(self, message: Mapping[str, Any]) -> Json:
        """Answers a message of the page with the result of the method named by "do", as JSON."""
        do = message.get("do")
        if do == "about":
            first = None if self._first is None else self._first()
            return {**self._explorer.about(), "sentences": self._read is not None, "first": first}
        if do == "answer":
            return self._explorer.answer(message)
        if do == "removal":
            return self._explorer.removal(message)
        if do == "layers":
            return self._explorer.layers(message)
        if do == "sentences":
            return self._sentences()
        if do == "page":
            if self._found is None:
                raise ValueError(
                    "the sentences must be read before a page of them, got no sentences yet: ask "
                    "for 'sentences' until they are ready"
                )
            return self._found.page(message.get("order"), message.get("begin", 0))
        raise ValueError(
            "do must be one of 'about', 'answer', 'removal', 'layers', 'sentences', 'page', got "
            f"{str(do)[:40]!r}"
        )

    def close(self, seconds: float = -1) -> bool:
        """Closes the explorer and waits for its computations in the background."""
        closed = self._explorer.close(seconds)
        if self._thread is not None:
            # The thread ends soon, because it asks between batches whether the explorer is closed.
            self._thread.join(None if seconds < 0 else seconds)
        return closed and not (self._thread is not None and self._thread.is_alive())

    def _sentences(self) -> Json:
        """Returns the answer to "sentences", and starts to read them at the first question."""
        if self._read is None:
            raise ValueError(
                "the explorer must be started with labelled sentences, got none: start it with "
                "--file test.csv"
            )
        # Two questions may come at the same time, and only one of them may start the thread.
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, args=(self._read,), daemon=True)
                self._thread.start()
        if self._failed is not None:
            return {"ready": True, "failed": self._failed}
        if self._found is None:
            return {"ready": False}
        return {"ready": True, **self._found.about()}

    def _work(self, read_sentences: Callable[[], Sentences]) -> None:
        try:
            self._found = read_sentences()
        except Exception as error:  # The page shows any error, because nobody else sees it.
            self._failed = str(error) or type(error).__name__
