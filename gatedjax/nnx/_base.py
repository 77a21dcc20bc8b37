"""NNX modules that own parameters and call the pure function of a Linen module."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as linen
import jax
from flax import nnx
from flax.nnx import bridge

from gatedjax._utils.types import Tree


class Scope(nnx.Module):
    """Parameters below a name, such as those of "layer_0": each is an attribute.

    Args:
      params: name -> parameter, an `nnx.Variable`, or the mapping of a scope below.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        set_params(self, params)


def set_params(module: nnx.Module, params: Mapping[str, Any]) -> None:
    """Sets parameters as attributes of a module, with a `Scope` for each nested mapping."""
    for name, value in params.items():
        setattr(module, name, Scope(value) if isinstance(value, Mapping) else value)


def arrays_of(module: nnx.Module) -> dict[str, Tree]:
    """Returns the parameters of a module, nested dicts of arrays in the form of Linen."""
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


class Module(nnx.Module):
    """The base class of the NNX modules.

    A Linen module is a pure function of its parameters. An NNX module has such a function, its
    parameters as attributes of the same names, a mode, and the streams of random numbers.

    Args:
      function: the Linen module.
      inputs: inputs of the Linen module with the right widths; only their shapes are used.
      rngs: the streams of the network. "params" draws the parameters.
      streams: the streams that the module draws from in training mode.
      **more: further inputs of the Linen module by name.

    Attributes:
      deterministic: True in evaluation mode, without dropout and drawn gates; `train()` and
        `eval()` set it.
    """

    def __init__(
        self,
        function: linen.Module,
        inputs: Sequence[Tree],
        *,
        rngs: nnx.Rngs,
        streams: Sequence[str] = (),
        **more: Tree,
    ) -> None:
        self._function = function
        variables = _initialize(function, rngs.params(), tuple(inputs), more)
        set_params(self, bridge.variables.linen_vars_to_nnx_attrs(variables))
        self._streams = tuple(streams)
        self.deterministic = False
        # A network may share `rngs` among modules, so that each module starts streams of its own.
        self.rngs = nnx.Rngs(**{name: rngs[name]() for name in streams})

    def _apply(self, *args: Any, **options: Any) -> Any:
        """Calls the pure function with the current parameters."""
        return self._function.apply({"params": arrays_of(self)}, *args, **options)

    def _apply_noisy(self, *args: Any, deterministic: bool | None, **options: Any) -> Any:
        """Calls the pure function in the current mode, or in that of `deterministic` if not None.

        In training mode each call draws new keys.
        """
        deterministic = self.deterministic if deterministic is None else deterministic
        rngs = {} if deterministic else {name: self.rngs[name]() for name in self._streams}
        return self._apply(*args, deterministic=deterministic, rngs=rngs, **options)
