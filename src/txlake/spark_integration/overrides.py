"""Copies of PySpark's objects (readers, writers, catalogs) with methods overridden by a lake's."""

from __future__ import annotations

from functools import cache
from typing import Any


def with_overrides(plain: Any, overrides: type, **attributes: Any) -> Any:
    """Return a copy of `plain` whose methods `overrides` overrides, with additional attributes.

    Its class inherits from both, so that `isinstance` finds PySpark's class.
    """
    kind: Any = type(plain)
    copy: Any = object.__new__(_subclass(overrides, kind))
    copy.__dict__.update(plain.__dict__, **attributes)
    return copy


@cache
def _subclass(overrides: type, plain: type) -> type:
    return type(f"Lake{plain.__name__}", (overrides, plain), {})
