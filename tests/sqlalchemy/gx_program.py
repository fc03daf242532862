"""A check of a lake's table by Great Expectations, which reaches it by its SQLAlchemy URL alone."""

from __future__ import annotations

import sys

import great_expectations as gx  # type: ignore[import-not-found, unused-ignore]
import great_expectations.expectations as gxe  # type: ignore[import-not-found, unused-ignore]

context = gx.get_context(mode="ephemeral")
source = context.data_sources.add_sql("lake", connection_string=sys.argv[1])
batch = source.add_table_asset("orders", table_name="orders").add_batch_definition_whole_table(
    "all"
)
suite = context.suites.add(
    gx.ExpectationSuite(
        name="orders",
        expectations=[
            gxe.ExpectColumnValuesToBeUnique(column="id"),
            gxe.ExpectColumnValuesToBeBetween(column="pieces", min_value=1),
            gxe.ExpectColumnValuesToNotBeNull(column="id"),
            gxe.ExpectColumnValuesToBeOfType(column="id", type_="BIGINT"),
            gxe.ExpectColumnMeanToBeBetween(column="pieces", min_value=1, max_value=9),
            gxe.ExpectTableRowCountToEqual(value=3),
        ],
    )
)
checks = context.validation_definitions.add(
    gx.ValidationDefinition(name="orders", data=batch, suite=suite)
)
for result in checks.run().results:
    assert not result.exception_info["raised_exception"], result.exception_info
    assert result.expectation_config is not None
    found = result.result.get("partial_unexpected_list")
    sys.stdout.write(f"{result.expectation_config.type} {result.success} {found}\n")
