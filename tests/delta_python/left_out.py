"""Which of Delta Spark's own Python tests can't be asked of txlake, each with its reason."""

from __future__ import annotations

_EXCEPTIONS = "raises an exception of Delta Spark's JVM; txlake's are raised in Python"
_CONVERSION = "looks at how delta-spark hooks into PySpark's conversion of the JVM's exceptions"
_MAVEN = "configures Spark to fetch delta-spark's own JARs; txlake has none"

# By `file.Class.test`, for Spark Connect too where that runs a test of the same name.
LEFT_OUT = {
    "test_deltatable.DeltaTableTests.test_create_table_geo_types": (
        "the table feature of geometry and geography isn't written"
    ),
    "test_deltatable.DeltaTableTests.test_dropFeatureSupport": (
        "adds table features that exist in Delta Spark's own test JARs alone"
    ),
    "test_deltatable.DeltaTableTests.test_optimize_w_partition_filter": (
        "compares the history's text of a predicate, which is Spark's inner one: ('key = a)"
    ),
    **{
        f"test_exceptions.DeltaExceptionTests.test_capture_{name}_exception": _EXCEPTIONS
        for name in (
            "concurrent_write",
            "metadata_changed",
            "protocol_changed",
            "concurrent_append",
            "concurrent_delete_read",
            "concurrent_delete_delete",
            "concurrent_transaction",
        )
    },
    **{
        f"test_exceptions_init.DeltaClassicExceptionConversionInstalledTests.{name}": _CONVERSION
        for name in (
            "test_convert_exception_is_patched",
            "test_importing_delta_installs_conversion",
        )
    },
    **{
        f"test_exceptions_init.DeltaConnectExceptionConversionInstalledTests.{name}": _CONVERSION
        for name in (
            "test_delta_exceptions_registered_in_mapping",
            "test_importing_delta_connect_installs_conversion",
        )
    },
    **{
        f"test_exceptions.DeltaConnectExceptionConversionTests.test_delta_{name}": _CONVERSION
        for name in (
            "base_exception_maps_to_base_class",
            "exception_from_error_info",
            "exception_with_fetch_error_details",
        )
    },
    "test_pip_utils.PipUtilsTests.test_maven_jar_loaded": _MAVEN,
    "test_pip_utils.PipUtilsCustomJarsTests.test_maven_jar_loaded": _MAVEN,
    "test_sql.DeltaSqlTests.test_ddls": (
        "expects that a new table has the protocol (1, 2), and ALTER TABLE ... SET LOCATION"
    ),
    "test_version.VersionAPITests.test_version_sbt_and_version_py_consistency": (
        "compares the version with that of the checkout"
    ),
}
