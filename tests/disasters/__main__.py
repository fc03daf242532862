"""The disasters: `make disasters KILLS=300 FREEZES=30 RESTORES=10 CATALOG=store`.

Each round is a lake that several processes write. They are killed, and frozen longer than their
lease, and an older copy of the catalog is restored. A round ends with an audit of the outcomes that
the processes were told, by delta-rs and txlake. Prints a line for each round and a report. Ends
with 1 if something is wrong; then the lake is in artifacts/disasters.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.disasters.audit import Verdict
from tests.disasters.catalogs import Catalog, PostgresqlCatalog, SqliteCatalog, StoreCatalog
from tests.disasters.rounds import STOPPED, Plan, run_round
from tests.postgresql import postgres_server
from tests.storage.conftest import s3_server
from tests.storage.servers import azure_server

ARTIFACTS = Path("artifacts", "disasters")
KINDS = ("sqlite", "postgresql", "store", "s3", "azure")
# In one round: the second copy may be from before the first recovery.
_RESTORES = 2


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def catalogs(kind: str, scratch: Path) -> Iterator[Callable[[Path], Catalog]]:
    """Yield a function that makes a new catalog for a round's folder."""
    if kind == "sqlite":
        yield lambda folder: SqliteCatalog(folder / "catalog.db")
        return
    if kind == "store":
        yield lambda folder: StoreCatalog((folder / "catalog").as_uri(), folder)
    elif kind == "s3":
        with s3_server() as options:
            yield lambda folder: StoreCatalog(f"s3://lake/{folder.name}", folder, options)
    elif kind == "azure":
        with azure_server(scratch) as options:
            yield lambda folder: StoreCatalog(f"az://lake/{folder.name}", folder, options)
    else:
        with postgres_server(scratch) as server:
            yield lambda folder: PostgresqlCatalog.create(
                server, folder.name.replace("-", "_"), folder
            )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--freezes", type=int, default=30)
    parser.add_argument("--restores", type=int, default=10)
    parser.add_argument("--catalog", choices=KINDS, default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    stopped_kinds = [STOPPED[number % len(STOPPED)] for number in range(chosen.restores)]
    rounds = max(1, -(-chosen.restores // _RESTORES))
    total = Verdict()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="txlake-disasters-") as scratch,
        catalogs(chosen.catalog, Path(scratch)) as catalog,
    ):
        for number in range(rounds):
            folder = Path(scratch) / f"round-{number}"
            folder.mkdir()
            plan = Plan(
                kills=_share(chosen.kills, rounds, number),
                freezes=_share(chosen.freezes, rounds, number),
                restores=tuple(stopped_kinds[number * _RESTORES :][:_RESTORES]),
            )
            verdict = run_round(folder, catalog(folder), plan, chosen.seed * 1_000 + number)
            print_line(f"round {number}  {plan.restores}  {len(verdict.faults)} faults")
            if verdict.faults:
                shutil.copytree(
                    folder, ARTIFACTS / f"{chosen.catalog}-{number}", dirs_exist_ok=True
                )
            total.add(verdict)
    print_line(total.report())
    print_line(f"minutes       {(time.monotonic() - began) / 60:.1f}")
    return 1 if total.faults else 0


def _share(count: int, rounds: int, number: int) -> int:
    return count // rounds + (number < count % rounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
