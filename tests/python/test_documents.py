"""What the documents show is what happens."""

import doctest
import pathlib

import firndb
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("document", ["docs/python.md", "README.md"])
def test_examples_in_documents_show_what_happens(document):
    ran = doctest.testfile(str(ROOT / document), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert ran.attempted > 5 and ran.failed == 0


def test_the_packages_own_example_shows_what_happens():
    ran = doctest.testmod(firndb)
    assert ran.attempted > 1 and ran.failed == 0
