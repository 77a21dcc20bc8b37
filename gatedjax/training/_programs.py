"""Compiled programs that the runs of a process share."""

import collections
import threading
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from gatedjax._utils.tracing import is_traced
from gatedjax.training._digests import compiled_digest

# A program stays compiled until this number of newer programs was used.
_MOST = 32
_shared: collections.OrderedDict[Hashable, Callable[..., Any]] = collections.OrderedDict()
_lock = threading.Lock()


class SharedProgram:
    """A compiled function that uses the program of an earlier equal function of the process:
    `jax.jit` would compile the steps of two runs twice. Shapes may change only in argument number
    `batch`, and only functions with an equal `place` (devices, options of `jax.jit`) share.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        batch: int | None,
        place: Hashable,
        **options: Any,
    ) -> None:
        self._jitted = jax.jit(function, **options)
        self._batch, self._place = batch, place
        self._by_shape: dict[Hashable, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        shape: Hashable = None
        if self._batch is not None:
            shape = tuple((k, np.shape(v)) for k, v in arguments[self._batch].items())
        program = self._by_shape.get(shape)
        if program is None:
            program = self._by_shape[shape] = self._find(arguments)
        return program(*arguments)

    def eval_shape(self, *arguments: Any) -> Any:
        """Returns the shapes and dtypes of the results, without computing them."""
        return self._jitted.eval_shape(*arguments)

    def _find(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        if any(map(is_traced, jax.tree.leaves(arguments))):
            # Inside another trace nothing is compiled here.
            return self._jitted
        digest = compiled_digest(self._jitted.trace(*arguments))
        if digest is None:
            return self._jitted
        key = digest, self._place, jax.tree.structure(arguments)
        with _lock:
            program = _shared.setdefault(key, self._jitted)
            _shared.move_to_end(key)
            while len(_shared) > _MOST:
                _shared.popitem(last=False)
        return program
