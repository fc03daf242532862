"""DDL: turns a statement and a table's snapshot into a Change of the table's definition."""
