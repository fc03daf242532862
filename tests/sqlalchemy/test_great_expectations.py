"""Great Expectations checks a table by its SQLAlchemy URL, in an environment that has it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.pages import ROOT
from tests.peers import need

PYTHON = ROOT / ".cache" / "gx" / "bin" / "python"


@pytest.mark.broad
@pytest.mark.peer("great-expectations")
def test_checks_that_pass_and_fail(tmp_path: Path) -> None:
    need("great-expectations", found=PYTHON.exists())
    url = f"txlake:///{tmp_path / 'lake'}"
    engine = sa.create_engine(url)
    orders = sa.Table(
        "orders", sa.MetaData(), sa.Column("id", sa.BigInteger), sa.Column("pieces", sa.Integer)
    )
    orders.create(engine)
    with engine.begin() as connection:
        rows = [{"id": 1, "pieces": 5}, {"id": 2, "pieces": 0}, {"id": 2, "pieces": 7}]
        connection.execute(sa.insert(orders), rows)
    engine.dispose()
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("gx_program.py")), url],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": str(PYTHON)},
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert sorted(done.stdout.splitlines()) == [
        "expect_column_mean_to_be_between True None",
        "expect_column_values_to_be_between False [0]",
        "expect_column_values_to_be_of_type True None",
        "expect_column_values_to_be_unique False [2, 2]",
        "expect_column_values_to_not_be_null True []",
        "expect_table_row_count_to_equal True None",
    ]
