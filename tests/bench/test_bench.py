"""The bench on next to nothing: what it measures is checked, and shown as it was measured."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench import growth
from bench.__main__ import _arguments, main, make_data
from bench.amounts import amount, count
from bench.chart import chart
from bench.engines import ENGINES
from bench.engines.delta_rs import DeltaRs
from bench.engines.transactions import PYTHON
from bench.pages import marks
from bench.points import tenths, typical, worst_step
from bench.registry import STARTS, SUITES, WORKS, Work
from bench.report import PART, TEN, console_table, markdown, markdown_of_ten, write_report
from bench.results import Machine, Results, SuiteRun, lines, load, save
from bench.sizes import FULL, QUICK, WARM_UP
from bench.sources.rows import Total
from bench.stage import WrongAnswer
from bench.suites.retail import of_first_version
from bench.worker import Measured, Task, measure
from tests.pages import ROOT, page

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.no_interop("the bench checks its answers itself"),
]

BEGIN, END = marks(PART)
PROCESSES = list(
    dict.fromkeys((work.suite, work.process) for work in WORKS if "delta-rs" in work.engines)
)
NAMES = {work.name for work in WORKS}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data that processes warm up on."""
    folder = tmp_path_factory.mktemp("data")
    for suite in SUITES:
        make_data(suite, folder, WARM_UP)
    return folder


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Callable[[str, str, str], Measured]:
    """Measures an engine's process."""

    def run(engine: str, suite: str, process: str) -> Measured:
        sizes = dataclasses.replace(WARM_UP, queries=22)
        return measure(Task(engine, suite, process, sizes, str(data), str(tmp_path), ""))

    return run


@pytest.mark.broad(keep=1)
@pytest.mark.parametrize(("suite", "process"), PROCESSES)
def test_every_work_of_delta_rs_gives_the_answers_and_its_repeats(
    run: Callable[[str, str, str], Measured], suite: str, process: str
) -> None:
    works = [work for work in WORKS if (work.suite, work.process) == (suite, process)]
    measured = run("delta-rs", suite, process)
    if suite == "retail" and not PYTHON.exists():
        assert all("tools/python_peer.sh ducklake" in why for why in measured.left_out.values())
    expected = {
        work.name: work.repeats
        for work in works
        if "delta-rs" in work.engines and work.name not in measured.left_out
    }
    assert suite == "retail" or measured.left_out == {}
    assert {name: len(values) for name, values in measured.samples.items()} == expected
    assert all(value > 0 for values in measured.samples.values() for value in values)
    details = {"tpch": 22, "contention": 79, "merge": 16, "growth": 24, "retail": 12}
    if not measured.left_out:
        assert len(measured.details) == details.get(suite, 0)


@pytest.mark.parametrize("process", ["log", "large log"])
def test_works_on_logs_are_done_by_txlake_without_spark(
    run: Callable[[str, str, str], Measured], process: str
) -> None:
    assert run("txlake", "log", process).samples.keys() == {
        work.name for work in WORKS if work.process == process
    }


@pytest.mark.parametrize(
    ("method", "suite"),
    [
        *(("update", "rows"), ("merge", "rows"), ("insert", "rows"), ("delete_keys", "tpch")),
        *(("update", "few"), ("merge_case", "merge"), ("insert", "growth")),
    ],
)
def test_an_engine_that_leaves_a_change_out_fails_the_bench(
    run: Callable[[str, str, str], Measured],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    suite: str,
) -> None:
    monkeypatch.setattr(DeltaRs, method, lambda *arguments: None)
    with pytest.raises(WrongAnswer, match=r"delta-rs: .*expected .*, found"):
        run("delta-rs", suite, suite)


@pytest.mark.parametrize(
    ("suite", "wrong"),
    [
        *(("rows", Total(1, 2, 3.0)), ("files", Total(0, 0, 0.0)), ("tpch", [])),
        *(("point", []), ("merge", Total(1, 2, 3.0)), ("growth", Total(1, 2, 3.0))),
    ],
)
def test_an_engine_with_a_wrong_answer_fails_the_bench(
    run: Callable[[str, str, str], Measured],
    monkeypatch: pytest.MonkeyPatch,
    suite: str,
    wrong: object,
) -> None:
    method = {"tpch": "query", "point": "row"}.get(suite, "total")
    monkeypatch.setattr(DeltaRs, method, lambda *arguments: wrong)
    with pytest.raises(WrongAnswer, match=r"delta-rs: .*expected"):
        run("delta-rs", suite, suite)


def test_a_compaction_that_leaves_files_fails_the_bench(
    run: Callable[[str, str, str], Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaRs, "compact", lambda *arguments: None)
    with pytest.raises(WrongAnswer, match="files left as they were"):
        run("delta-rs", "files", "files")


@pytest.mark.broad
def test_each_round_begins_with_another_engine_and_its_results_are_kept(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "results.json"
    options = ["--quick", "--rows", "40000", "--rounds", "2", "--data", str(data)]
    engines = ["--engines", "delta-rs", "txlake"]
    chosen = ["log", *options, *engines, "--json", str(path)]
    sizes = dataclasses.replace(WARM_UP, rows=QUICK.rows)
    monkeypatch.setattr("bench.__main__.QUICK", sizes)
    monkeypatch.setattr("sys.argv", ["bench", *chosen])
    main()
    shown = capsys.readouterr()
    turns = [line.rpartition(", ")[2] for line in shown.err.splitlines() if ", round " in line]
    assert turns == [*["delta-rs", "txlake"] * 2, *["txlake", "delta-rs"] * 2]
    assert "refresh it by one commit" in shown.out
    (run,) = load(path).suites.values()
    assert run.sizes == dataclasses.replace(sizes, rows=40_000)
    for work in WORKS:
        if work.suite == "log":
            for rounds in run.samples[work.name].values():
                assert [len(values) for values in rounds] == [work.repeats, work.repeats]
    assert not list(data.glob("run-*"))
    before = path.read_bytes()
    monkeypatch.setattr("sys.argv", ["bench", *chosen, "--report"])
    main()
    assert path.read_bytes() == before
    assert "refresh it by one commit" in capsys.readouterr().out


def test_a_process_that_is_measured_once_starts_more_often(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def measured(suite: str, process: str, engine: str, *others: object) -> Measured:
        started.append((process, engine))
        return Measured({work.name: [1.0] for work in WORKS if work.process == process}, {}, {})

    monkeypatch.setattr("bench.__main__._measured", measured)
    path = tmp_path / "results.json"
    options = ["--quick", "--rows", "40000", "--data", str(data), "--json", str(path)]
    monkeypatch.setattr("sys.argv", ["bench", "start", *options, "--engines", "spark", "txlake"])
    main()
    assert started[:6] == [("cold", "spark"), ("cold", "txlake")] * STARTS["cold"]
    assert started[6:] == [("process", "spark"), ("process", "txlake")]
    (run,) = load(path).suites.values()
    assert run.samples["start-sum"]["txlake"] == [[1.0]] * STARTS["cold"]


def test_an_engine_that_fails_ends_the_bench(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    options = ["--quick", "--rows", "40000", "--data", str(data), "--json", str(path)]
    monkeypatch.setattr("sys.argv", ["bench", "rows", *options, "--through", "false"])
    with pytest.raises(SystemExit, match="raw Spark failed at rows"):
        main()
    assert not path.exists()
    assert not list(data.glob("run-*"))


@pytest.mark.parametrize(
    ("options", "suites"),
    [
        ([], list(SUITES)),
        (
            ["--quick"],
            [
                *("rows", "start", "point", "files", "log", "tpch", "lake", "served"),
                *("transactions", "scale"),
            ],
        ),
        (["--quick", "contention"], ["contention"]),
    ],
)
def test_quick_leaves_the_longest_out_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, options: list[str], suites: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *options])
    assert _arguments().suites == suites


def test_amounts_are_set_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["scale", "--size", "huge_files=5", "--size", "statements=7"]
    monkeypatch.setattr("sys.argv", ["bench", *chosen])
    assert _arguments().sizes == dataclasses.replace(FULL, huge_files=5, statements=7)


@pytest.mark.parametrize(
    "options",
    [
        *(["row"], ["--rows", "1000"], ["--engines", "postgres"]),
        *(["--size", one] for one in ("rows", "row=3", "rows=x", "scale=3", "words=3")),
    ],
)
def test_bad_options_are_refused(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *options])
    with pytest.raises(SystemExit, match="2"):
        main()


def test_the_registry_names_each_work_once_and_engines_that_there_are() -> None:
    assert len(NAMES) == len(WORKS)
    for work in WORKS:
        assert set(work.engines) <= set(ENGINES)
        assert "txlake" in work.engines
        assert work.target.against is None or work.target.against in work.engines
        work.title.format(**FULL.words())


def a_run(factor: float, suite: str, engines: tuple[str, ...] = tuple(ENGINES)) -> SuiteRun:
    """As if everything took the others a second, and txlake so many."""

    def samples(work: Work) -> dict[str, list[list[float]]]:
        return {
            engine: [[factor, 100.0], [factor]] if engine == "txlake" else [[1.0, 1.0], [1.0]]
            for engine in work.engines
            if engine in engines
        }

    return SuiteRun(
        date="2026-01-01",
        rounds=2,
        sizes=FULL,
        machine=Machine(2, 24, "A & B", "Linux"),
        versions=dict.fromkeys(
            ("txlake", "pyspark", "delta-spark", "deltalake", "python", "java"), "1.2"
        ),
        samples={work.name: samples(work) for work in WORKS if work.suite == suite},
        details={},
    )


def test_a_suite_run_again_replaces_its_own_results_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    assert load(path).suites == {}
    save(path, Results({"tpch": a_run(0.5, "tpch"), "rows": a_run(0.5, "rows")}))
    again = load(path)
    again.suites["rows"] = a_run(0.1, "rows")
    save(path, again)
    assert load(path) == Results({"rows": a_run(0.1, "rows"), "tpch": a_run(0.5, "tpch")})
    assert list(load(path).suites) == ["rows", "tpch"]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: cast("Work", work).name)
def test_a_target_is_reached_up_to_its_factor(work: Work) -> None:
    for factor, reached in ((work.target.factor, True), (work.target.factor * 1.01, False)):
        (line,) = (
            line
            for line in lines(Results({work.suite: a_run(factor, work.suite)}))
            if line.work is work
        )
        assert line.medians["txlake"] == factor  # the median of all rounds' repeats
        assert line.reached is reached


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    alone = lines(Results({"tpch": a_run(0.1, "tpch", ("txlake", "delta-rs"))}))
    assert [line.reached for line in alone] == [None] * len(alone)
    assert "| not measured |" in markdown(Results({"tpch": a_run(0.1, "tpch", ("txlake",))}))


def test_tables_show_every_work_with_its_target_and_how_it_was_measured() -> None:
    results = Results({suite: a_run(0.55, suite) for suite in SUITES})
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(console_table(results))
    shown = console.export_text()
    text = markdown(results)
    for line in lines(results):
        assert line.title in shown
        assert f"| {line.title} |" in text
    assert "| sum over 20M rows | 1.00 s | 1.00 s | 1.00 s | - | 0.55 s | 0.55 x raw Spark" in text
    assert "| 1.15 x | reached |" in text
    assert "| UPDATE 1 row in 20M | - | 1.00 s | 1.00 s | - | 0.55 s | 0.55 x delta-rs" in text
    assert "| 0.5 x | missed |" in text
    assert "| at most 5 ms | reached |" in text
    assert "2 rounds on 2 cores (A & B, 24 GiB), 2026-01-01" in text


def test_quick_is_of_the_sizes_that_suites_can_have() -> None:
    for sizes in (FULL, QUICK, WARM_UP):
        assert sizes.rows % (100 * sizes.row_files) == 0
        assert sizes.few_rows % sizes.few_files == 0
        assert sizes.small_files >= 100


def test_the_chart_has_a_bar_for_each_engine_and_a_line_to_reach() -> None:
    results = Results({suite: a_run(0.55, suite) for suite in SUITES})
    image = ElementTree.fromstring(chart(lines(results)))
    bars = list(image.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(bars) == len(ENGINES) + sum(len(work.engines) for work in WORKS)
    texts = {text.text for text in image.iter("{http://www.w3.org/2000/svg}text")}
    assert {line.title for line in lines(results)} <= texts
    assert "prefers-color-scheme: dark" in chart(lines(results))


def test_the_report_changes_nothing_but_its_place(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shown = tmp_path / "docs" / "benchmarks.md"
    shown.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    (tmp_path / "docs" / "growth.md").write_text(f"{BEGIN}\n{END}")
    readme = tmp_path / "README.md"
    readme.write_text(f"first\n{BEGIN}\n{END}\nlast\n")
    results = Results({"files": a_run(0.2, "files")})
    for _ in range(2):
        write_report(results, tmp_path)
        assert shown.read_text() == f"before\n{BEGIN}\n{markdown(results)}{END}\nafter\n"
        assert readme.read_text() == f"first\n{BEGIN}\n{markdown_of_ten(results)}{END}\nlast\n"
    assert (tmp_path / "docs" / "bench.svg").read_text() == chart(lines(results))
    shown.write_text("no place")
    with pytest.raises(SystemExit, match="no place for the table"):
        write_report(results, tmp_path)


def a_grown_run() -> Results:
    """As if rows cost txlake nothing, and Delta Spark as much as they are."""
    found = a_run(0.5, "growth")
    for size in (100, 1_000, 10_000):
        found.details.setdefault("txlake", {})[f"growth: rows: sum & more: {size}"] = [
            3.0,
            4.0,
            5.0,
        ]
        found.details.setdefault("delta-spark", {})[f"growth: rows: sum & more: {size}"] = [
            float(size)
        ]
    found.details["txlake"]["growth: tables: commit: 20"] = [8.0]
    found.details["txlake"]["seconds of something else"] = [1.0]
    return Results({"growth": found})


def test_curves_are_the_medians_by_size_and_what_a_tenfold_costs() -> None:
    slow, flat, single = growth.curves(a_grown_run())
    assert (slow.engine, flat.engine, single.engine) == ("delta-spark", "txlake", "txlake")
    assert flat.points == [(100, 4.0), (1_000, 4.0), (10_000, 4.0)]
    assert [growth.tenfold(curve) for curve in (slow, flat, single)] == pytest.approx([10, 1, 1])
    text = growth.markdown(a_grown_run())
    assert "![Each cost by rows in the table](growth-rows.svg)" in text
    assert "| sum & more | txlake | 100: 4.00 ms | 10,000: 4.00 ms | 1.00 x |" in text
    assert growth.markdown(Results({})) == "Nothing of it has been measured.\n"


def test_a_plot_has_a_line_for_each_engine_and_one_that_grows_as_the_work() -> None:
    slow, flat, single = growth.curves(a_grown_run())
    for found, lines_drawn in (([slow, flat], 3), ([single], 2)):
        image = ElementTree.fromstring(growth.chart(found))
        drawn = list(image.iter("{http://www.w3.org/2000/svg}polyline"))
        assert len(drawn) == lines_drawn
        dots = list(image.iter("{http://www.w3.org/2000/svg}circle"))
        assert len(dots) == sum(len(curve.points) for curve in found)


def test_the_sizes_of_a_curve_and_its_worst_step() -> None:
    assert [tenths(50_000), tenths(40), tenths(4)] == [[500, 5_000, 50_000], [4, 40], [4]]
    assert worst_step([4.0, 2.0, 3.0, 2.5]) == 1.5
    assert worst_step([4.0, 3.0, 2.0]) < 1


def test_typical_costs_are_those_of_a_machine_whose_pace_changes() -> None:
    rounds = [[10.0, 12.0], [20.0, 24.0], [11.0, 13.2], [30.0, 20.0]]
    first, second = typical(rounds)
    assert second / first == pytest.approx(1.2)
    assert first + second == pytest.approx(2 * 17.05)


def test_the_report_writes_the_page_on_growth(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("benchmarks.md", "growth.md"):
        (docs / name).write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    (tmp_path / "README.md").write_text(f"{BEGIN}\n{END}")
    write_report(a_grown_run(), tmp_path)
    part = growth.markdown(a_grown_run())
    assert (docs / "growth.md").read_text() == f"before\n{BEGIN}\n{part}{END}\nafter\n"
    assert sorted(path.name for path in docs.glob("growth-*")) == [
        *("growth-rows.svg", "growth-tables.svg")
    ]


def test_the_page_shows_the_results_that_are_there() -> None:
    results = load(ROOT / "bench" / "results.json")
    assert f"{BEGIN}\n{markdown(results)}{END}" in page("docs/benchmarks.md")
    assert page("docs/bench.svg") == chart(lines(results))
    assert f"{BEGIN}\n{markdown_of_ten(results)}{END}" in page("README.md")
    assert f"{BEGIN}\n{growth.markdown(results)}{END}" in page("docs/growth.md")


def test_amounts() -> None:
    assert [amount(value, "s") for value in (0.0042, 0.123, 1.5, 12.34, 1234.5)] == [
        *("0.004 s", "0.12 s", "1.50 s", "12.3 s", "1,234 s")
    ]
    assert [count(value) for value in (20_000_000, 200_000, 1_000, 1_500_000)] == [
        *("20M", "200,000", "1,000", "1,500,000")
    ]


def test_the_readme_has_ten_works_that_are_there_and_one_that_misses_its_target() -> None:
    results = load(ROOT / "bench" / "results.json")
    assert len(TEN) == len(set(TEN)) == 10
    found = [line for line in lines(results) if line.work.name in TEN]
    assert len(found) == 10
    assert not all(line.reached for line in found)


def test_a_query_of_an_older_version_keeps_its_columns_names() -> None:
    text = "SELECT store_sales.a FROM store_sales, item WHERE store_sales.b = item.b"
    assert of_first_version(text) == (
        "SELECT store_sales.a FROM store_sales VERSION AS OF 0, item WHERE store_sales.b = item.b"
    )
