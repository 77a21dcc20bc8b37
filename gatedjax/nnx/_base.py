"""The factory of NNX modules, which own parameters and call a Linen module as a pure function."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as linen
import jax
import jax.numpy as jnp
from flax import nnx
from flax.core import freeze
from flax.nnx import bridge

from gatedjax._utils.fields import check_fields, check_size
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


def check_streams(rngs: nnx.Rngs, streams: Sequence[str]) -> None:
    """Raises unless `rngs` has the stream "params" and the given streams."""
    if not isinstance(rngs, nnx.Rngs):
        raise TypeError(f"rngs must be an nnx.Rngs, such as nnx.Rngs(0), got {rngs!r}")
    needed = ("params", *streams)
    if missing := [name for name in needed if not {name, "default"} & set(rngs)]:
        raise ValueError(
            f"rngs must have the streams {', '.join(needed)} for these options, got "
            f"{', '.join(rngs) or 'none'}: give {'=1, '.join(missing)}=1 to nnx.Rngs as well, "
            "or write nnx.Rngs(0) for all streams"
        )


def example_inputs(width: int) -> jax.Array:
    """Returns zeros [1, 1, width], a sequence of one vector from which a module is initialised."""
    return jnp.zeros((1, 1, width))


class Module(nnx.Module):
    """The base class of the NNX modules: a Linen module as a pure function, its parameters as
    attributes of the same names, a mode, and streams of random numbers. A subclass names the Linen
    module and the positional arguments; it has the signatures and texts of the Linen module.
    """

    _linen: ClassVar[type[linen.Module]]
    _widths: ClassVar[dict[str, Any]] = {"in_features": inspect.Parameter.empty}
    """Names and defaults of the widths, which a Linen module takes from its inputs."""

    def __init_subclass__(
        cls,
        of: type[linen.Module] | None = None,
        arguments: str = "",
        methods: str = "",
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        if of is None:
            return
        cls._linen = of
        cls.__signature__ = _signature(of, arguments.split(), cls._widths)  # type: ignore[attr-defined]
        cls.__doc__ = _doc(cls, of)
        for name in ("__call__", *methods.split()):
            setattr(cls, name, _forwarded(getattr(of, name)))

    def __init__(self, *args: Any, rngs: nnx.Rngs, **options: Any) -> None:
        signature = type(self).__signature__  # type: ignore[attr-defined]
        values = dict(signature.bind(*args, rngs=rngs, **options).arguments)
        del values["rngs"]
        # The options are static in compiled programs and must be hashable, which a dict is not.
        values |= {name: freeze(its) for name, its in values.items() if isinstance(its, dict)}
        widths = {name: values.pop(name, None) for name in self._widths}
        check_size(**{name: width for name, width in widths.items() if width is not None})
        function = self._linen(**values, parent=None)
        check_fields(function, attn_hidden=0, cap=0, ablate_above=0)
        streams = self._streams_of(function)
        check_streams(rngs, streams)
        self._function, self._streams, self._input_widths = function, tuple(streams), widths
        inputs, named_inputs = self._examples(**widths)
        variables = _initialize(function, rngs.params(), inputs, named_inputs)
        set_params(self, bridge.variables.linen_vars_to_nnx_attrs(variables))
        self.deterministic = False
        # A network may share `rngs` among modules, so that each module starts new streams.
        self.rngs = nnx.Rngs(**{name: rngs[name]() for name in streams})

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Computes the outputs of the Linen module; each subclass has its signature."""
        raise NotImplementedError

    def _streams_of(self, function: Any) -> list[str]:
        """Returns the streams of random numbers that a call in training mode needs."""
        del function
        return []

    def _examples(self, **widths: Any) -> tuple[tuple[Tree, ...], dict[str, Tree]]:
        """Returns example inputs, by position and by name, to initialise the parameters from."""
        return (example_inputs(widths["in_features"]),), {}

    def _apply(self, *args: Any, **options: Any) -> Any:
        # The parameters are collected at each call, because training replaces their values.
        return self._function.apply({"params": arrays_of(self)}, *args, **options)

    def _apply_noisy(self, *args: Any, deterministic: bool | None = None, **options: Any) -> Any:
        deterministic = self.deterministic if deterministic is None else deterministic
        # In evaluation no key is drawn, so that a call does not change the state of the module.
        rngs = {} if deterministic else {name: self.rngs[name]() for name in self._streams}
        return self._apply(*args, deterministic=deterministic, rngs=rngs, **options)


def _signature(
    of: type[linen.Module], arguments: Sequence[str], widths: dict[str, Any]
) -> inspect.Signature:
    """Returns the signature of a twin: `arguments`, then widths and fields by keyword, and rngs."""
    fields = {
        name: (its.default, its.annotation)
        for name, its in inspect.signature(of).parameters.items()
        if name not in ("parent", "name")
    }
    defaults = {
        name: (default, int | None if default is None else int) for name, default in widths.items()
    } | fields
    names = [*arguments, *(name for name in defaults if name not in arguments)]
    # An argument before one without a default has none either.
    required = [name for name in arguments if defaults[name][0] is inspect.Parameter.empty]
    for name in arguments[: arguments.index(required[-1])] if required else ():
        defaults[name] = inspect.Parameter.empty, defaults[name][1]
    keyword, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            name,
            positional if name in arguments else keyword,
            default=defaults[name][0],
            annotation=defaults[name][1],
        )
        for name in names
    ]
    return inspect.Signature([*parameters, inspect.Parameter("rngs", keyword, annotation=nnx.Rngs)])


def _doc(cls: type, of: type[linen.Module]) -> str:
    """Returns the text of a twin with the attributes of the Linen module as its arguments."""
    text, its = inspect.cleandoc(cls.__doc__ or ""), inspect.cleandoc(of.__doc__ or "")
    section = re.search(r"^Attributes:\n(.*?)(?=^\S|\Z)", its, flags=re.DOTALL | re.MULTILINE)
    options = "" if section is None else section[1].rstrip()
    if "\nArgs:\n" not in text:
        text += "\n\nArgs:\n  in_features: D, the width of the inputs."
    return (
        f"{text.rstrip()}\n{options}\n"
        '  rngs: the streams of the network; "params" draws the parameters.\n'
    )


def _forwarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that calls a method of the Linen module, with its signature and text."""
    signature = inspect.signature(function)
    text = inspect.cleandoc(function.__doc__ or "")
    is_noisy = "deterministic" in signature.parameters
    if is_noisy:
        mode = signature.parameters["deterministic"].replace(default=None, annotation=bool | None)
        signature = signature.replace(
            parameters=[
                mode if name == "deterministic" else its
                for name, its in signature.parameters.items()
            ]
        )
        text += "\n\n`deterministic` is the mode of the module unless it is given."

    def method(self: Any, *args: Any, **options: Any) -> Any:
        signature.bind(self, *args, **options)
        run = self._apply_noisy if is_noisy else self._apply
        return run(*args, method=function.__name__, **options)

    method.__name__, method.__doc__ = function.__name__, text
    method.__qualname__ = function.__qualname__
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method
