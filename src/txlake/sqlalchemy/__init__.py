"""txlake's dialect of SQLAlchemy: `sqlalchemy.create_engine("txlake:///path/of/warehouse")`.

Found by its entry point; nothing here has to be imported, except for `merge` and types that
SQLAlchemy lacks.

| module | owns |
| --- | --- |
| `dialect` | connections: URLs, isolation levels, pools, lost connections |
| `compiler`, `identifiers`, `json_paths` | queries and changes as SQL |
| `ddl` | definitions of tables as SQL, and types |
| `merge` | MERGE |
| `migrations` | what Alembic needs |
| `reflection` | what a lake has |
| `types` | types of columns |
"""

from __future__ import annotations

from txlake.sqlalchemy.merge import Merge, merge
from txlake.sqlalchemy.types import INTERVAL, MAP, STRUCT, TIMESTAMP_NTZ, TINYINT, VARIANT

__all__ = ["INTERVAL", "MAP", "STRUCT", "TIMESTAMP_NTZ", "TINYINT", "VARIANT", "Merge", "merge"]
