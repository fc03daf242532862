"""guards.toml: by mutant, the test that kills it, or the reason why none can.

Owns the file's format: a table for each function, a line for each mutant, in the order of the
source.
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
class Entry:
    """The entry of one mutant: the test that kills it, or the reason why none does.

    Attributes:
        text: the guard's source when the reason was written, which makes a reason for another guard
            noticeable.
    """

    killer: str | None = None
    reason: str | None = None
    text: str | None = None


def load() -> dict[str, Entry]:
    """Return the entries of guards.toml by the mutants' keys."""
    if not LIST.exists():
        return {}
    entries: dict[str, Entry] = {}
    for place, lines in tomllib.loads(LIST.read_text()).items():
        for guard, value in lines.items():
            if isinstance(value, str):
                entry = Entry(value)
            else:
                entry = Entry(reason=value["equivalent"], text=value["guard"])
            entries[f"{place}: {guard}"] = entry
    return entries


def all_mutants() -> list[Mutant]:
    """Return all mutants, in the order of the list."""
    return [
        mutant for folder in MODULES for module in modules(folder) for mutant in mutants_of(module)
    ]


def write(entries: Mapping[str, Entry], mutants: Iterable[Mutant]) -> None:
    """Write the entries of these mutants and no others."""
    places: dict[str, list[str]] = {}
    for mutant in mutants:
        entry = entry_of(mutant, entries)
        if entry is None:
            continue
        value = _quoted(entry.killer)
        if entry.killer is None:
            value = f"{{ equivalent = {_quoted(entry.reason)}, guard = {_quoted(entry.text)} }}"
        places.setdefault(mutant.place, []).append(f"{_quoted(mutant.guard)} = {value}\n")
    tables = (f"\n[{_quoted(place)}]\n{''.join(lines)}" for place, lines in places.items())
    LIST.write_text("".join((_HEAD, *tables)))


def entry_of(mutant: Mutant, entries: Mapping[str, Entry]) -> Entry | None:
    """Return a mutant's entry, unless its reason was written for another guard."""
    entry = entries.get(mutant.key)
    return None if entry is not None and entry.text not in (None, mutant.text) else entry


def _quoted(text: str | None) -> str:
    return json.dumps(text, ensure_ascii=False)
