"""The command: which guards there are, which tests kill their mutants, and whether they do.

`list` rewrites guards.toml as the source is now and says which mutants have no killer; `search`
looks for killers of those; `check` runs the killers. Beginnings of names choose among the mutants.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tests.mutation import checking, listing, searching
from tests.mutation.guards import Mutant
from tests.mutation.listing import Known


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("what", choices=("list", "search", "check"))
    parser.add_argument("only", nargs="*", help="beginnings of the names of mutants")
    parser.add_argument("--tests", nargs="+", default=searching.FOLDERS, help="where to search")
    parser.add_argument("--tries", type=int, default=60, help="tests tried for each mutant")
    given = parser.parse_args()
    every = listing.every_mutant()
    begins = tuple(given.only) or ("",)
    chosen = [one for one in every if one.key.startswith(begins)]
    match given.what:
        case "check":
            wrong = checking.check(chosen, listing.known())
            print("\n".join(wrong))
            return 1 if wrong else 0
        case "search":
            _search(chosen, every, given.tests, given.tries)
    known = listing.known()
    listing.write(known, every)
    missing = [one for one in chosen if listing.known_of(one, known) is None]
    for one in missing:
        print(f"no killer: {one.key} (line {one.line}, {one.text})")
    print(f"{len(chosen)} mutants, {len(missing)} without a killer")
    return 1 if missing else 0


def _search(
    chosen: Sequence[Mutant], every: Sequence[Mutant], folders: Sequence[str], tries: int
) -> None:
    known = listing.known()

    def found(mutant: Mutant, one: Known | None) -> None:
        if one is None:
            print(f"survives: {mutant.key} (line {mutant.line}, {mutant.text})", flush=True)
        else:
            listing.write({**listing.known(), mutant.key: one}, every)

    missing = [one for one in chosen if listing.known_of(one, known) is None]
    if missing:
        searching.search(missing, folders, tries, found)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a mutant may have left a thread that never ends
