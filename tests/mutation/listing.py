"""guards.toml: which test kills which mutant, or why none can.

Owns the file's form: a table for each module, a line for each mutant, in the order of the source.
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
    """What is written down of one mutant: the test that kills it, or why none does."""

    killer: str | None = None
    reason: str | None = None


def known() -> dict[str, Known]:
    """What guards.toml says, by the mutant's key."""
    if not LIST.exists():
        return {}
    found: dict[str, Known] = {}
    for module, lines in tomllib.loads(LIST.read_text()).items():
        for name, said in lines.items():
            one = Known(said) if isinstance(said, str) else Known(reason=said["equivalent"])
            found[f"{module}:{name}"] = one
    return found


def every_mutant() -> list[Mutant]:
    """All mutants, in the order of the list."""
    return [
        mutant for folder in MODULES for module in modules(folder) for mutant in mutants_of(module)
    ]


def write(said: Mapping[str, Known], mutants: Iterable[Mutant]) -> None:
    """Writes what is known of these mutants, and nothing of others."""
    lines = [_HEAD]
    module = ""
    for mutant in mutants:
        one = said.get(mutant.key)
        if one is None:
            continue
        if mutant.module != module:
            module = mutant.module
            lines.append(f'\n["{module}"]\n')
        value = json.dumps(one.killer, ensure_ascii=False)
        if one.killer is None:
            value = f"{{ equivalent = {json.dumps(one.reason, ensure_ascii=False)} }}"
        lines.append(f"{json.dumps(mutant.name, ensure_ascii=False)} = {value}\n")
    LIST.write_text("".join(lines))
