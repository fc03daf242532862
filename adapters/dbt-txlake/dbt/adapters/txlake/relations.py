"""Names of tables and views, and their columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.base.column import Column
from dbt.adapters.base.relation import BaseRelation, Policy
from dbt.adapters.contracts.relation import ComponentName, RelationType


@dataclass
class _Include(Policy):
    database: bool = False
    schema: bool = True
    identifier: bool = True


@dataclass
class _Quote(Policy):
    database: bool = True
    schema: bool = True
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class TxlakeRelation(BaseRelation):
    """A table or view of a lake: `schema`.`name`. Letter case doesn't count."""

    quote_policy: Policy = field(default_factory=_Quote)
    include_policy: Policy = field(default_factory=_Include)
    quote_character: str = "`"
    require_alias: bool = False
    replaceable_relations: Any = frozenset({RelationType.Table, RelationType.View})

    def _is_exactish_match(self, field: ComponentName, value: str) -> bool:
        return (self.path.get_part(field) or "").lower() == value.lower()


@dataclass
class TxlakeColumn(Column):
    """A column, whose type is SQL text: `decimal(10,2)`."""

    @property
    def quoted(self) -> str:
        return f"`{self.column.replace('`', '``')}`"

    @property
    def data_type(self) -> str:
        return self.dtype

    @classmethod
    def translate_type(cls, dtype: str) -> str:
        return dtype

    def is_string(self) -> bool:
        return self.dtype.lower().startswith(("string", "varchar", "char"))

    def can_expand_to(self, other_column: Column) -> bool:
        """Return False: a text has no limit unless the user sets one, and then it stays."""
        return False
