"""The command: list the guards, search for tests that kill their mutants, check that they do.

`list` rewrites guards.toml by the present source and prints the mutants without a killer; `search`
looks for killers of these; `check` runs the killers. Prefixes of names select mutants.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.mutation import checking, listing, searching
from tests.mutation.guards import Mutant
from tests.mutation.listing import Entry


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("what", choices=("list", "search", "check"))
    parser.add_argument("only", nargs="*", help="beginnings of the names of mutants")
    parser.add_argument("--tests", nargs="+", default=searching.FOLDERS, help="where to search")
    parser.add_argument("--tries", type=int, default=60, help="tests tried for each mutant")
    arguments = parser.parse_args()
    every = listing.all_mutants()
    prefixes = tuple(arguments.only) or ("",)
    chosen = [mutant for mutant in every if mutant.key.startswith(prefixes)]
    match arguments.what:
        case "check":
            problems = checking.check(chosen, listing.load())
            print("\n".join(problems))
            return 1 if problems else 0
        case "search":
            _search(chosen, every, arguments.tests, arguments.tries)
    entries = listing.load()
    listing.write(entries, every)
    missing = [mutant for mutant in chosen if listing.entry_of(mutant, entries) is None]
    for mutant in missing:
        print(f"no killer: {mutant.key} (line {mutant.line}, {mutant.text})")
    print(f"{len(chosen)} mutants, {len(missing)} without a killer")
    return 1 if missing else 0


def _search(
    chosen: Sequence[Mutant], every: Sequence[Mutant], folders: Sequence[str], tries: int
) -> None:
    entries = listing.load()

    def record(mutant: Mutant, entry: Entry | None) -> None:
        if entry is None:
            print(f"survives: {mutant.key} (line {mutant.line}, {mutant.text})", flush=True)
        else:
            listing.write({**listing.load(), mutant.key: entry}, every)

    missing = [mutant for mutant in chosen if listing.entry_of(mutant, entries) is None]
    if missing:
        searching.search(missing, folders, tries, record)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a mutant may have left a thread that never ends
