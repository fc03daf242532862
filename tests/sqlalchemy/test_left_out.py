"""The page of what is supported lists what of SQLAlchemy's suite isn't run."""

from __future__ import annotations

from tests.pages import page
from tests.sqlalchemy.suite.left_out import LEFT_OUT, MISSING


def test_the_page_has_each_exclusion_with_its_reason() -> None:
    section = page("docs/compatibility.md").split("## SQLAlchemy\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"][2:]
    reasons = {reason: names for names, reason in rows}
    assert reasons.keys() == {*MISSING.values(), *LEFT_OUT.values()}
    for name, reason in MISSING.items():
        assert f"`{name}`" in reasons[reason]
