"""Queries and changes as txlake's SQL, which is Spark's."""

from __future__ import annotations

from typing import Any, NoReturn

from sqlalchemy import exc
from sqlalchemy.sql import elements, sqltypes
from sqlalchemy.sql.compiler import SQLCompiler

from txlake.protocol.type_text import quoted_text
from txlake.sqlalchemy.merge import Merge, When
from txlake.sqlalchemy.types import TypeText

_NO_VALUES = " DEFAULT VALUES"


class TxlakeCompiler(SQLCompiler):
    """Renders statements."""

    def visit_txlake_type_text(self, element: TypeText, **_: Any) -> str:
        return quoted_text(self.dialect.type_compiler_instance.process(element.described))

    # --- clauses ---------------------------------------------------------------------------

    def limit_clause(self, select: Any, **kw: Any) -> str:
        text = ""
        if select._limit_clause is not None:
            text += f"\n LIMIT {self.process(select._limit_clause, **kw)}"
        if select._offset_clause is not None:
            text += f"\n OFFSET {self.process(select._offset_clause, **kw)}"
        return text

    def fetch_clause(self, select: Any, *_: Any, **kw: Any) -> str:
        for option, words in (("percent", "PERCENT"), ("with_ties", "WITH TIES")):
            if select._fetch_clause_options[option]:
                raise exc.CompileError(f"txlake has no FETCH ... {words}: use a window function")
        kw.pop("fetch_clause", None)
        text = f"\n LIMIT {self.process(select._fetch_clause, **kw)}"
        if select._offset_clause is not None:
            text += f"\n OFFSET {self.process(select._offset_clause, **kw)}"
        return text

    def for_update_clause(self, select: Any, **kw: Any) -> NoReturn:
        raise exc.CompileError(
            "txlake has no SELECT ... FOR UPDATE: use isolation_level SERIALIZABLE, which finds "
            "changes of rows that were read, or LOCK TABLE"
        )

    def default_from(self) -> str:
        return ""

    def visit_empty_set_expr(self, element_types: Any, **_: Any) -> str:
        columns = ", ".join(map(self._null_of, element_types or [sqltypes.INTEGERTYPE]))
        return f"SELECT {columns} WHERE 1!=1"

    def visit_empty_set_op_expr(self, type_: Any, expand_op: Any, **kw: Any) -> str:
        text = str(super().visit_empty_set_op_expr(type_, expand_op, **kw))
        if len(type_) > 1:  # Spark compares structs of the same types alone
            nulls = ", ".join(map(self._null_of, type_))
            text = text.replace(", ".join(["NULL"] * len(type_)), nulls, 1)
        return text

    def _null_of(self, kind: Any) -> str:
        if kind._isnull:
            return "NULL"
        impl = kind.dialect_impl(self.dialect)
        return f"CAST(NULL AS {self.dialect.type_compiler_instance.process(impl)})"

    # --- operators ---------------------------------------------------------------------------

    def visit_is_distinct_from_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"NOT ({self.process(binary.left, **kw)} <=> {self.process(binary.right, **kw)})"

    def visit_is_not_distinct_from_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"({self.process(binary.left, **kw)} <=> {self.process(binary.right, **kw)})"

    def _regexp(self, binary: Any, operator: Any, kw: Any) -> str:
        pattern = self.process(binary.right, **kw)
        flags = binary.modifiers.get("flags")
        if flags is not None:
            pattern = f"concat({quoted_text(f'(?{flags})')}, {pattern})"
        return f"{self.process(binary.left, **kw)} {operator} {pattern}"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._regexp(binary, "REGEXP", kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._regexp(binary, "NOT REGEXP", kw)

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        pattern, replacement = binary.right.clauses
        text = self.process(pattern, **kw)
        flags = binary.modifiers.get("flags")
        if flags is not None:
            text = f"concat({quoted_text(f'(?{flags})')}, {text})"
        return (
            f"regexp_replace({self.process(binary.left, **kw)}, {text}, "
            f"{self.process(replacement, **kw)})"
        )

    def visit_bitwise_xor_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"{self.process(binary.left, **kw)} ^ {self.process(binary.right, **kw)}"

    # --- JSON as text ------------------------------------------------------------------------

    def _json_element(self, binary: Any, kw: Any) -> str:
        left, path = self.process(binary.left, **kw), self.process(binary.right, **kw)
        kind = binary.type
        found = f"variant_get(parse_json({left}), {path}"
        if kind._type_affinity is sqltypes.JSON:
            return f"to_json({found}, 'variant'))"
        return f"{found}, {quoted_text(self.dialect.type_compiler_instance.process(kind))})"

    def visit_json_getitem_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._json_element(binary, kw)

    def visit_json_path_getitem_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._json_element(binary, kw)

    # --- parts of nested values --------------------------------------------------------------

    def visit_getitem_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        left, right = self.process(binary.left, **kw), self.process(binary.right, **kw)
        return f"try_element_at({left}, {right})"

    def visit_array(self, element: Any, **kw: Any) -> str:
        return f"array({self.visit_clauselist(element, **kw)})"

    # --- functions ---------------------------------------------------------------------------

    def visit_now_func(self, fn: Any, **_: Any) -> str:
        return "current_timestamp()"

    def visit_localtimestamp_func(self, fn: Any, **_: Any) -> str:
        return "localtimestamp()"

    def visit_char_length_func(self, fn: Any, **kw: Any) -> str:
        return f"char_length{self.function_argspec(fn, **kw)}"

    def visit_random_func(self, fn: Any, **_: Any) -> str:
        return "rand()"

    def visit_sequence(self, sequence: Any, **_: Any) -> NoReturn:
        raise exc.CompileError("txlake has no sequences: use Identity()")

    def visit_cast(self, cast: elements.Cast[Any], **kw: Any) -> str:
        kind = cast.type.dialect_impl(self.dialect)
        if isinstance(kind, sqltypes.String) and not isinstance(kind, sqltypes.Enum):
            return f"CAST({self.process(cast.clause, **kw)} AS STRING)"
        return str(super().visit_cast(cast, **kw))

    def render_literal_value(self, value: Any, type_: Any) -> str:
        text = super().render_literal_value(value, type_)
        if isinstance(value, str) and text[:1] == "'":
            return quoted_text(value)
        return text

    # --- changes -----------------------------------------------------------------------------

    def visit_insert(self, insert_stmt: Any, *args: Any, **kw: Any) -> str:
        text = str(super().visit_insert(insert_stmt, *args, **kw))
        if text.endswith(_NO_VALUES):
            first = self.preparer.format_column(next(iter(insert_stmt.table.columns)))
            return f"{text.removesuffix(_NO_VALUES)} ({first}) VALUES (DEFAULT)"
        return text

    def update_from_clause(self, *_: Any, **__: Any) -> NoReturn:
        raise exc.CompileError(
            "txlake has no UPDATE ... FROM: use txlake.sqlalchemy.merge(table).using(source), or a "
            "subquery"
        )

    def delete_extra_from_clause(self, *_: Any, **__: Any) -> NoReturn:
        raise exc.CompileError(
            "txlake has no DELETE ... USING: use txlake.sqlalchemy.merge(table).using(source), or "
            "a subquery"
        )

    def visit_txlake_merge(self, merge: Merge, **kw: Any) -> str:
        if merge.condition is None or not merge.whens:
            raise exc.CompileError("merge: expected using(...), on(...) and a when_...() at least")
        how = "MERGE WITH SCHEMA EVOLUTION INTO" if merge.evolves else "MERGE INTO"
        parts = [
            f"{how} {self.process(merge.target, asfrom=True, **kw)}",
            f"USING {self.process(merge.source, asfrom=True, **kw)}",
            f"ON {self.process(merge.condition, **kw)}",
            *(self._when(merge, one, kw) for one in merge.whens),
        ]
        return "\n".join(parts)

    def _when(self, merge: Merge, when: When, kw: dict[str, Any]) -> str:
        text = f"WHEN {when.rows}"
        if when.condition is not None:
            text += f" AND {self.process(when.condition, **kw)}"
        text += f" THEN {when.action}"
        if when.action == "DELETE":
            return text
        if when.assignments is None and merge.evolves:
            return f"{text} {'SET *' if when.action == 'UPDATE' else '*'}"
        assignments = when.assignments or [(one.name, one) for one in merge.source.c]
        names = [self.preparer.quote(name) for name, _ in assignments]
        found = [self.process(value, **kw) for _, value in assignments]
        if when.action == "UPDATE":
            pairs = ", ".join(f"{name} = {value}" for name, value in zip(names, found))
            return f"{text} SET {pairs}"
        return f"{text} ({', '.join(names)}) VALUES ({', '.join(found)})"
