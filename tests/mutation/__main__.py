"""The command: `python -m tests.mutation list | search | check`."""

from __future__ import annotations

import argparse
import os
import sys

from tests.mutation import listing
from tests.mutation.guards import Mutant
from tests.mutation.listing import Known


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.mutation", description=__doc__)
    parser.add_argument("what", choices=("list", "search", "check"))
    parser.add_argument("only", nargs="*", help="parts of the names of mutants")
    parser.add_argument("--tests", nargs="*", default=None)
    parser.add_argument("--tries", type=int, default=40)
    given = parser.parse_args()
    every = listing.every_mutant()
    known = listing.known()
    chosen = [one for one in every if not given.only or any(part in one.key for part in given.only)]
    missing = [one for one in chosen if one.key not in known]
    if given.what == "list":
        listing.write(known, every)
        for one in missing:
            print(f"no killer: {one.key}")
    elif given.what == "search":
        from tests.mutation import searching

        done = 0

        def found(mutant: Mutant, one: Known | None) -> None:
            nonlocal done
            done += 1
            if one is None:
                print(f"\nsurvives: {mutant.key} (line {mutant.line})", flush=True)
            else:
                known[mutant.key] = one
            if done % 25 == 0:
                listing.write(known, every)
                print(f"\r{done} of {len(missing)} searched", end="", file=sys.stderr, flush=True)

        searching.search(missing, given.tests or searching.FOLDERS, given.tries, found)
        listing.write(known, every)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
