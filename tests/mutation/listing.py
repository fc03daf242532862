"""guards.toml: which test kills which mutant, or why none can.

Owns the file's form: a table for each function, a line for each mutant, in the order of the source.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.guards import MODULES, Mutant, modules, mutants_of

LIST = Path(__file__).with_name("guards.toml")

_HEAD = """\
# Every guard of the modules in guards.py, each way to switch it off, and the test that fails then;
# or, in its place, why it makes no difference. `make guards` brings the list up to date.
"""


@dataclass(frozen=True, slots=True)
class Known:
    """What is written down of one mutant: the test that kills it, or why none does.

    Attributes:
        text: the guard's source, where no test would notice that the reason speaks of another one.
    """

    killer: str | None = None
    reason: str | None = None
    text: str | None = None


def known() -> dict[str, Known]:
    """What guards.toml says, by the mutant's key."""
    if not LIST.exists():
        return {}
    found: dict[str, Known] = {}
    for place, lines in tomllib.loads(LIST.read_text()).items():
        for guard, said in lines.items():
            if isinstance(said, str):
                one = Known(said)
            else:
                one = Known(reason=said["equivalent"], text=said["guard"])
            found[f"{place}: {guard}"] = one
    return found


def every_mutant() -> list[Mutant]:
    """All mutants, in the order of the list."""
    return [
        mutant for folder in MODULES for module in modules(folder) for mutant in mutants_of(module)
    ]


def write(said: Mapping[str, Known], mutants: Iterable[Mutant]) -> None:
    """Writes what is known of these mutants, and nothing of others."""
    places: dict[str, list[str]] = {}
    for mutant in mutants:
        one = known_of(mutant, said)
        if one is None:
            continue
        value = _quoted(one.killer)
        if one.killer is None:
            value = f"{{ equivalent = {_quoted(one.reason)}, guard = {_quoted(one.text)} }}"
        places.setdefault(mutant.place, []).append(f"{_quoted(mutant.guard)} = {value}\n")
    tables = (f"\n[{_quoted(place)}]\n{''.join(lines)}" for place, lines in places.items())
    LIST.write_text("".join((_HEAD, *tables)))


def known_of(mutant: Mutant, said: Mapping[str, Known]) -> Known | None:
    """What is written down of a mutant, unless it is a reason that was given for another guard."""
    one = said.get(mutant.key)
    return None if one is not None and one.text not in (None, mutant.text) else one


def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)
