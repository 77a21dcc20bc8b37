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
    """A compiled function that uses the program of an earlier equal function of the process.

    The functions of two runs, such as their training steps, are different objects, so that
    `jax.jit` would compile the same program twice. Here a function is traced and lowered for each
    new shape of a batch, which takes a fraction of the time of a compilation. If an earlier
    function was lowered to the same program with the same constants, its program is called.

    Args:
      function: a pure function of trees of arrays.
      batch: the position of the argument, a dict of arrays, whose shapes may change from call to
        call. All other arguments must always have the shapes of the first call. None if no shape
        changes.
      place: a hashable value, such as a tuple of the devices and of the options of `jax.jit` that
        are not in the text of a program. Only functions with equal values share a program.
      **options: options of `jax.jit`.
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
        """Returns the result of the function for these arguments, from its compiled program.

        The program is compiled at the first call, and for each new shape of the batch, unless an
        equal function was compiled before.
        """
        shape: Hashable = None
        if self._batch is not None:
            shape = tuple((k, np.shape(v)) for k, v in arguments[self._batch].items())
        program = self._by_shape.get(shape)
        if program is None:
            program = self._by_shape[shape] = self._find(arguments)
        return program(*arguments)

    def eval_shape(self, *arguments: Any) -> Any:
        """Returns the shapes and dtypes of the results, without computing them.

        The result is a tree of `jax.ShapeDtypeStruct`, and the arguments are the arguments of a
        call.
        """
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
