"""The results shown: a table for the terminal, and for docs/benchmarks.md a table and the chart.

docs/growth.md gets what growth.py draws, README.md the ten works that most users do.
"""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from bench import growth
from bench.amounts import amount
from bench.chart import chart
from bench.engines import TITLES
from bench.pages import write_part
from bench.registry import Target
from bench.results import Line, Results, SuiteRun, lines

PART = "bench"

TEN = (
    "sum",
    "append",
    "update-one",
    "update-tenth",
    "merge",
    "compact-deleted",
    "point-clustered",
    "compact-small",
    "contend-processes",
    "two-rows",
)
"""The names of README's works; one that misses its target is among them."""


def console_table(results: Results) -> Table:
    """The table for a terminal."""
    shown = lines(results)
    reached = sum(1 for line in shown if line.reached)
    table = Table(
        title=f"txlake beside the other engines: medians; {reached} of {len(shown)} reached",
        caption="\n".join(_conditions(results)),
    )
    table.add_column("work")
    for title in TITLES.values():
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("txlake is", "to reach", ""):
        table.add_column(title, no_wrap=True)
    suite = ""
    for line in shown:
        if suite not in ("", line.work.suite):
            table.add_section()
        suite = line.work.suite
        style = {True: "green", False: "red", None: "dim"}[line.reached]
        table.add_row(*_cells(line), f"[{style}]{_verdict(line)}[/]")
    return table


def markdown(results: Results) -> str:
    """The page's part: the table and how it was measured."""
    head = ("work", *TITLES.values(), "txlake is", "to reach", "")
    rows = [" | ".join(head), " | ".join(["---", *["---:"] * len(TITLES), "---", "---", "---"])]
    rows += [" | ".join((*_cells(line), _verdict(line))) for line in lines(results)]
    table = "\n".join(f"| {row} |" for row in rows)
    return f"{table}\n\n" + " ".join(_conditions(results)) + "\n"


def markdown_of_ten(results: Results) -> str:
    """README's part: a few works, and nothing but their times."""
    found = {line.work.name: line for line in lines(results)}
    rows = [" | ".join(("work", *TITLES.values())), " | ".join(["---", *["---:"] * len(TITLES)])]
    for line in (found[key] for key in TEN if key in found):
        rows.append(" | ".join((line.title, *_medians(line))))
    return "\n".join(f"| {row} |" for row in rows) + "\n"


def write_report(results: Results, root: Path) -> None:
    """Write README.md, docs/benchmarks.md and docs/growth.md between their marks, and images."""
    docs = root / "docs"
    write_part(root / "README.md", PART, markdown_of_ten(results))
    (docs / "bench.svg").write_text(chart(lines(results)), encoding="utf-8")
    write_part(docs / "benchmarks.md", PART, markdown(results))
    found = growth.curves(results)
    for axis in growth.AXES:
        of_axis = [curve for curve in found if curve.axis == axis]
        if of_axis:
            (docs / growth.image(axis)).write_text(growth.chart(of_axis), encoding="utf-8")
    write_part(docs / "growth.md", PART, growth.markdown(results))


def _cells(line: Line) -> list[str]:
    wanted = _wanted(line.work.target, line.work.unit)
    return [line.title, *_medians(line), _stands(line), wanted]


def _medians(line: Line) -> list[str]:
    return [
        amount(line.medians[engine], line.work.unit) if engine in line.medians else "-"
        for engine in TITLES
    ]


def _stands(line: Line) -> str:
    against = line.work.target.against
    if against is None or line.ratio is None:
        return ""
    return f"{line.ratio:.2f} x {TITLES[against]}"


def _wanted(target: Target, unit: str) -> str:
    if target.against is None:
        return f"at most {target.factor:g} {unit}"
    return f"{target.factor:g} x"


def _verdict(line: Line) -> str:
    return {True: "reached", False: "missed", None: "not measured"}[line.reached]


def _conditions(results: Results) -> list[str]:
    """How it was measured: once for suites that ran alike."""
    alike: dict[str, list[str]] = {}
    for name, run in results.suites.items():
        alike.setdefault(_condition(run), []).append(name)
    if len(alike) == 1:
        return list(alike)
    return [f"{', '.join(names)}: {text}" for text, names in alike.items()]


def _condition(run: SuiteRun) -> str:
    version, machine = run.versions, run.machine
    return (
        f"Medians of {run.rounds} round{'s' if run.rounds > 1 else ''} on {machine.cores} cores "
        f"({machine.processor}, {machine.memory_gib} GiB), {run.date}: "
        f"txlake {version['txlake']}, Spark {version['pyspark']}, "
        f"Delta Spark {version['delta-spark']}, delta-rs {version['deltalake']}, "
        f"Python {version['python']}."
    )
