"""Spark for the SQL of other people: its functions, its plans."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.session_settings import settings_made
from txlake.errors import InvalidRequest
from txlake.spark.plans import OPERATORS, refusal_of_plan
from txlake.spark.served import served_session
from txlake.sql.statements.calls import stored_expression_problem
from txlake.sql.statements.functions import PURE, REFUSED, why_refused


def functions_of(spark: SparkSession) -> set[str]:
    """The functions that SQL finds in a session, table-valued ones included."""
    classic: Any = spark
    state = classic._jsparkSession.sessionState()
    found = set()
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        known = registry.listFunction()
        found |= {known.apply(place).funcName().lower() for place in range(known.size())}
    return found


def builtin(spark: SparkSession) -> set[str]:
    """The functions that this release of Spark has."""
    classic: Any = spark
    analysis = classic._jvm.org.apache.spark.sql.catalyst.analysis
    found = set()
    for registry in (analysis.FunctionRegistry.builtin(), analysis.TableFunctionRegistry.builtin()):
        known = registry.listFunction()
        found |= {known.apply(place).funcName().lower() for place in range(known.size())}
    return found


def plan_of(spark: SparkSession, text: str) -> str:
    """The analysed plan of a query, as JSON."""
    frame: Any = spark.sql(text)
    return str(frame._jdf.queryExecution().analyzed().toJSON())


def test_every_function_of_this_release_is_classified(spark: SparkSession) -> None:
    words = {name for name in builtin(spark) if name[0].isalpha()}
    assert len(words) > 400
    assert words - PURE - REFUSED.keys() == set(), "pure, or refused? Spark's release added them"


def test_a_served_session_finds_pure_functions_alone(spark: SparkSession) -> None:
    served = served_session(spark)
    names = {name for name in functions_of(served) if name[0].isalpha()}
    assert names <= PURE
    assert names >= builtin(spark) & PURE
    assert functions_of(spark) >= {"reflect", "java_method"}, "the owner's session has them"
    assert served.sql("SELECT upper('a') AS x").collect()[0][0] == "A"


def test_a_served_session_has_the_settings_of_its_owners(spark: SparkSession) -> None:
    made = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.variable.substitute": "true",
        "spark.sql.runSQLOnFiles": "true",
        "spark.txlake.test": "set at run time",
        "fs.test.key": "a key of Hadoop's",
    }
    with settings_made(spark, made):
        served = served_session(spark)
    assert served.sql("SELECT 2147483647 + 1 < 0").collect()[0][0]
    assert served.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    assert served.conf.get("spark.sql.variable.substitute") == "false"
    assert served.conf.get("spark.sql.runSQLOnFiles") == "false"
    assert served.conf.get("fs.test.key") == "a key of Hadoop's"


def test_a_session_of_spark_connect_is_not_served() -> None:
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(InvalidRequest, match="Spark Connect"):
        served_session(kind())


@pytest.mark.parametrize(
    "call",
    [
        "reflect('java.lang.System', 'lineSeparator')",
        "try_reflect('java.lang.System', 'lineSeparator')",
        "transform(array(1), x -> java_method('java.lang.System', 'lineSeparator'))",
        "(SELECT reflect('java.lang.System', 'lineSeparator') FROM range(1))",
        "xpath_string('<a/>', 'a')",
        "from_xml('<a/>', 'a INT')",
        "of_python(1)",
    ],
)
def test_a_plan_is_refused_though_the_session_finds_its_functions(
    spark: SparkSession, call: str
) -> None:
    spark.udf.register("of_python", lambda x: str(x))
    for text in (
        f"SELECT {call} AS x",
        f"WITH c AS (SELECT {call} AS x) SELECT * FROM c",
        f"SELECT * FROM range(2) WHERE {call} IS NULL ORDER BY 1",
    ):
        assert refusal_of_plan(plan_of(spark, text), ()) is not None, text


def test_a_plan_reads_the_named_views_alone(spark: SparkSession) -> None:
    spark.range(3).where(F.col("id") > 0).createOrReplaceTempView("txlake_plan_one")
    spark.range(3).createOrReplaceTempView("txlake_plan_two")
    text = "SELECT a.id FROM txlake_plan_one a JOIN txlake_plan_two b USING (id)"
    plan = plan_of(spark, text)
    assert refusal_of_plan(plan, {"txlake_plan_one", "txlake_plan_two"}) is None
    assert "txlake_plan_two" in str(refusal_of_plan(plan, {"txlake_plan_one"}))
    nested = "SELECT * FROM range(2) WHERE EXISTS (SELECT 1 FROM txlake_plan_two)"
    assert "txlake_plan_two" in str(refusal_of_plan(plan_of(spark, nested), ()))


def test_operators_that_leave_the_machine_are_not_on_the_list() -> None:
    assert not {name.rpartition(".")[2] for name in OPERATORS} & {
        *("ScriptTransformation", "InsertIntoDir", "LogicalRelation", "View", "Command"),
        *("SQLTable", "DataSourceV2Relation", "MapInPandas", "InsertIntoStatement"),
    }


def test_the_examples_of_sparks_functions_are_split_into_calls(spark: SparkSession) -> None:
    """The tokens of every pure function's own examples call nothing that isn't pure."""
    classic: Any = spark
    registry = classic._jsparkSession.sessionState().functionRegistry()
    known = registry.listFunction()
    wrong = []
    for place in range(known.size()):
        name = known.apply(place)
        if name.funcName() not in PURE:
            continue
        for line in (registry.lookupFunction(name).get().getExamples() or "").splitlines():
            text = line.strip()
            if not text.startswith("> SELECT ") or text.count("SELECT") > 1 or " FROM " in text:
                continue
            reason = stored_expression_problem(text[len("> SELECT ") :].rstrip(";"))
            if reason is not None and "OVER" not in text:
                wrong.append((text, reason))
    assert not wrong


PIECES = (
    *("'", '"', "`", "\\", "\\'", "''", "r'", 'r"', "R'", "x'", "--", "\n", "\\\n", "/*", "*/"),
    *(
        "/*+",
        "(",
        ")",
        ",",
        ".",
        " ",
        "\t",
        "\u00a0",
        "\uff07",
        " AND ",
        " + ",
        "x",
        "1",
        "1.",
        "://",
    ),
    *(
        "$$",
        "{",
        "}",
        ":",
        "?",
        "[0]",
        "::int",
        "->",
        "upper(",
        "transform(a, x -> ",
        "IN (",
        "MAP",
    ),
    *(
        "reflect(1)",
        "reflect (",
        "`reflect`(1)",
        '"reflect"(1)',
        "reflect/**/(1)",
        "reflect--\n(1)",
    ),
    *("IDENTIFIER('reflect')(1)", "(SELECT reflect(1))", "FROM t", "system.builtin.reflect(1)"),
)
ENDINGS = (
    "",
    "",
    " AND reflect(1)",
    " AND reflect(1) --'",
    " AND reflect(1) */",
    "'",
    '"',
    "`",
    ")",
)


def test_what_is_judged_harmless_calls_nothing_for_sparks_parser(spark: SparkSession) -> None:
    """Texts made of quotes, comments and calls, as Spark's own parser takes them apart."""
    classic: Any = spark
    parser = classic._jsparkSession.sessionState().sqlParser()
    chance = random.Random(20260815)
    parsed = 0
    for _ in range(12_000):
        pieces = chance.choices(PIECES, k=chance.randint(1, 9))
        text = f"x = 1 AND {''.join(pieces)}{chance.choice(ENDINGS)}"
        if stored_expression_problem(text) is not None:
            continue
        try:
            tree = parser.parseExpression(text)
        except ParseException:
            continue
        parsed += 1
        nodes = msgspec.json.decode(tree.toJSON())
        names = [one["nameParts"] for one in nodes if one["class"].endswith("UnresolvedFunction")]
        assert all(why_refused(name.strip("[]").replace(", ", ".")) is None for name in names), text
        assert "Subquery" not in tree.toJSON(), text
    assert parsed > 100
