"""What a profile says of a lake."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.contracts.connection import Credentials
from dbt_common.exceptions import DbtRuntimeError

UNITS = ("model", "build", "branch")
AFTER_FAILURE = ("keep", "drop")
LAKE = "spark_catalog"
"""What SQL calls the lake in names of three parts, and dbt its one database."""


@dataclass
class TxlakeCredentials(Credentials):
    """An output of type `txlake` in profiles.yml.

    Attributes:
        warehouse: the lake's folder or URL; or a server, `txlake+http://host:8080`.
        schema: the database that models are built in.
        catalog, token, storage_options, isolation, timeout_s: as `txlake.dbapi.connect` has them.
        unit: what becomes visible together: each "model"; the whole "build", as one transaction;
            or the whole build as one "branch", which is published when everything passed.
        failed_branch: whether to "keep" or "drop" the branch of a build that failed.
        branch_retention: how long a branch is kept if nobody drops it, such as "7 DAYS".
    """

    warehouse: str = ""
    database: str = LAKE
    schema: str = "default"
    catalog: str | None = None
    token: str | None = None
    storage_options: dict[str, str] = field(default_factory=dict)
    isolation: str | None = None
    timeout_s: float = 330.0
    unit: str = "model"
    failed_branch: str = "keep"
    branch_retention: str = "7 DAYS"

    def __post_init__(self) -> None:
        if self.database != LAKE:
            raise DbtRuntimeError(
                f"the profile has database: {self.database}; dbt's databases are a lake's catalog, "
                f"{LAKE}, and its schemas the lake's databases: leave `database` out"
            )
        if not self.warehouse:
            raise DbtRuntimeError(
                "the profile has no `warehouse`: the lake's folder or URL, or "
                "txlake+http://host:port of a server"
            )
        for name, known in (("unit", UNITS), ("failed_branch", AFTER_FAILURE)):
            value = getattr(self, name)
            if value not in known:
                raise DbtRuntimeError(
                    f"the profile has {name}: {value}; expected one of {', '.join(known)}"
                )

    @property
    def type(self) -> str:
        return "txlake"

    @property
    def unique_field(self) -> str:
        """The value that dbt hashes to tell lakes apart."""
        return self.warehouse

    def _connection_keys(self) -> tuple[str, ...]:
        return ("warehouse", "database", "schema", "catalog", "isolation", "unit")
