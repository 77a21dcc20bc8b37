"""help() of a configuration shows each field with its description."""

import dataclasses
import inspect
import pydoc

import pytest

from gatedjax._utils.field_docs import document_fields, field_docstrings
from tests._grouped import CONFIGS


@pytest.mark.parametrize("kind", CONFIGS.values(), ids=CONFIGS)
def test_help_shows_the_fields_of_a_configuration(kind):
    shown = " ".join(pydoc.plain(pydoc.render_doc(kind)).replace("\n |", "\n").split())
    texts = field_docstrings(kind)
    for field in dataclasses.fields(kind):
        assert " ".join(f"{field.name}: {texts[field.name]}".split()) in shown


def test_fields_of_base_classes_come_first_and_fields_without_a_docstring_are_left_out():
    @document_fields
    @dataclasses.dataclass
    class Base:
        """A base."""

        first: int = 0
        """The first
        field."""
        second: int = 0

    @document_fields
    @dataclasses.dataclass
    class Derived(Base):
        """A derived class."""

        third: int = 0
        """The third field."""

    assert inspect.getdoc(Derived) == (
        "A derived class.\n\nAttributes:\n  first: The first field.\n  third: The third field."
    )
    assert Derived().__doc__ == Derived.__doc__


def test_a_class_without_source_keeps_its_docstring():
    kind = dataclasses.make_dataclass("Made", ["field"], namespace={"__doc__": "Text."})
    assert document_fields(kind).__doc__ == "Text."
