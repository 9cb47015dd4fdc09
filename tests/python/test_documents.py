"""Runs the examples of the documents."""

import doctest
import inspect
import pathlib

import firndb
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("document", ["docs/python.md", "docs/python-api.md", "README.md"])
def test_examples_in_documents_show_what_happens(document):
    ran = doctest.testfile(str(ROOT / document), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert ran.attempted > 5 and ran.failed == 0


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs/python-api.md").read_text()
    missing = [name for name in firndb.__all__ if f"`{name}" not in text and f"`firndb.{name}" not in text]
    for kind in (firndb.Connection, firndb.Cursor):
        own = [name for name in vars(kind) if not name.startswith("_") and not isinstance(vars(kind)[name], type)]
        missing += [f"{kind.__name__}.{name}" for name in own if f"`{name}" not in text]
    assert not missing
    for function in (firndb.connect, *(vars(firndb.Connection).values()), *(vars(firndb.Cursor).values())):
        if inspect.isfunction(function) and not function.__name__.startswith("_"):
            arguments = [name for name in inspect.signature(function).parameters if name not in ("self", "settings")]
            missing += [f"{function.__qualname__}({name})" for name in arguments if f"`{name}" not in text and f"{name}=" not in text and f"*{name}*" not in text]
    assert not missing


def test_the_packages_own_example_shows_what_happens():
    ran = doctest.testmod(firndb)
    assert ran.attempted > 1 and ran.failed == 0
