"""PySpark's readers, writers and catalogs with a lake's methods in front of their own."""

from __future__ import annotations

from functools import cache
from typing import Any


def fronted(plain: Any, front: type, **attributes: Any) -> Any:
    """An object as `plain` is, with the methods of `front` before its own, and these attributes.

    It is of a class of both, so that programs that ask for PySpark's class find it.
    """
    kind: Any = type(plain)
    made: Any = object.__new__(_both(front, kind))
    made.__dict__.update(plain.__dict__, **attributes)
    return made


@cache
def _both(front: type, plain: type) -> type:
    return type(f"Lake{plain.__name__}", (front, plain), {})
