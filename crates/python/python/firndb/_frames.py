"""Frames that statements read by the names of variables: ``SELECT * FROM orders``, where ``orders`` is a data frame."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["find_frame"]


def find_frame(name: str) -> object | None:
    """The frame that ``name`` refers to in the function that called the package, else in its module.

    Variables are looked up with the exact name first, then in any case, since SQL converts unquoted names to lower case.
    """
    scope = sys._getframe()
    while str(scope.f_globals.get("__name__")).partition(".")[0] == "firndb":
        if scope.f_back is None:
            return None
        scope = scope.f_back
    for variables in (scope.f_locals, scope.f_globals):
        found = _named(variables, name)
        if found is not None:
            return found
    return None


def _named(variables: Mapping[str, Any], name: str) -> object | None:
    if name in variables:
        return _frame(variables[name])
    alike = (value for key, value in list(variables.items()) if key.lower() == name)
    frames = [frame for value in alike if (frame := _frame(value)) is not None]
    return frames[0] if len(frames) == 1 else None


def _frame(value: object) -> object | None:
    # The class is checked: an object may have any attribute dynamically (`__getattr__`).
    kind = type(value)
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__"):
        return value
    if kind.__name__ == "LazyFrame" and kind.__module__.partition(".")[0] == "polars":
        return value.collect()  # type: ignore[attr-defined, no-any-return]
    return None
