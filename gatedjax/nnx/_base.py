"""NNX modules that own parameters and call the pure function of a Linen module."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx import bridge

from gatedjax._utils.field_checks import check_size
from gatedjax._utils.types import Tree


class Scope(nnx.Module):
    """The parameters below a name, such as "layer_0"; each parameter is an attribute."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        set_params(self, params)


def set_params(module: nnx.Module, params: Mapping[str, Any]) -> None:
    """Sets `params`, a mapping of names to `nnx.Variable`s, as attributes of a module."""
    for name, value in params.items():
        setattr(module, name, Scope(value) if isinstance(value, Mapping) else value)


def arrays_of(module: nnx.Module) -> dict[str, Tree]:
    """Returns the parameters of a module by name, like the collection "params" of Linen."""
    # Other attributes, such as `rngs` and the mode, are no parameters of the Linen module.
    return {
        name: arrays_of(value) if isinstance(value, Scope) else value[...]
        for name, value in vars(module).items()
        if isinstance(value, Scope | nnx.Param)
    }


@functools.partial(jax.jit, static_argnums=0)
def _initialize(
    module: linen.Module, key: jax.Array, inputs: Sequence[Tree], more: dict[str, Tree]
) -> Tree:
    # Under `jit` only the initialisers are computed and not the outputs.
    return module.init(key, *inputs, **more)


def example_inputs(**width: int) -> jax.Array:
    """Returns zeros [1, 1, width], a sequence of one vector from which a module is initialised."""
    check_size(**width)
    return jnp.zeros((1, 1, *width.values()))


class Module(nnx.Module):
    """The base class of the NNX modules: a Linen module as a pure function, its parameters as
    attributes of the same names, a mode, and streams of random numbers.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # `help` would show the arguments of the metaclass, (*args, **kwargs).
        _, *arguments = inspect.signature(cls.__init__).parameters.values()
        cls.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]

    def __init__(
        self,
        function: linen.Module,
        inputs: Sequence[Tree],
        *,
        rngs: nnx.Rngs,
        streams: Sequence[str] = (),
        **more: Tree,
    ) -> None:
        if not isinstance(rngs, nnx.Rngs):
            raise TypeError(f"rngs must be an nnx.Rngs, such as nnx.Rngs(0), got {rngs!r}")
        needed = ("params", *streams)
        if missing := [name for name in needed if not {name, "default"} & set(rngs)]:
            raise ValueError(
                f"rngs must have the streams {', '.join(needed)} for these options, got "
                f"{', '.join(rngs) or 'none'}: give {'=1, '.join(missing)}=1 to nnx.Rngs as well, "
                "or write nnx.Rngs(0) for all streams"
            )
        self._function = function
        variables = _initialize(function, rngs.params(), tuple(inputs), more)
        set_params(self, bridge.variables.linen_vars_to_nnx_attrs(variables))
        self._streams = tuple(streams)
        self.deterministic = False
        # A network may share `rngs` among modules, so that each module starts streams of its own.
        self.rngs = nnx.Rngs(**{name: rngs[name]() for name in streams})

    def _apply(self, *args: Any, **options: Any) -> Any:
        # The parameters are collected at each call, because training replaces their values.
        return self._function.apply({"params": arrays_of(self)}, *args, **options)

    def _apply_noisy(self, *args: Any, deterministic: bool | None, **options: Any) -> Any:
        deterministic = self.deterministic if deterministic is None else deterministic
        # In evaluation no key is drawn, so that a call does not change the state of the module.
        rngs = {} if deterministic else {name: self.rngs[name]() for name in self._streams}
        return self._apply(*args, deterministic=deterministic, rngs=rngs, **options)
