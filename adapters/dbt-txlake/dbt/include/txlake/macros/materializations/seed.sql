{# Seeds: a table of the CSV file's columns, and one INSERT of rows of Python's values. #}

{% macro txlake__get_batch_size() %}{{ return(5000) }}{% endmacro %}
{% macro txlake__get_binding_char() %}{{ return('?') }}{% endmacro %}

{% macro txlake__create_csv_table(model, agate_table) %}
  {%- set types = model['config'].get('column_types', {}) %}
  {%- set quoting = model['config'].get('quote_columns', none) %}
  {%- set sql %}
    create or replace table {{ this }} (
      {%- for name in agate_table.column_names %}
      {{ adapter.quote_seed_column(name, quoting) }} {{ types.get(name, adapter.convert_type(agate_table, loop.index0)) }}{{ ',' if not loop.last }}
      {%- endfor %}
    )
    {{ txlake_table_clauses() }}
  {%- endset %}
  {% call statement('_') -%}
    {{ sql }}
  {%- endcall %}
  {{ return(sql) }}
{% endmacro %}

{# The file's columns may be others than last time: the table is replaced, in one transaction. #}
{% macro txlake__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {{ return(create_csv_table(model, agate_table)) }}
{% endmacro %}

{% macro txlake__load_csv_rows(model, agate_table) %}
  {%- set sql %}insert into {{ this }} ({{ get_seed_column_quoted_csv(model, agate_table.column_names) }}) values (
    {%- for _ in agate_table.column_names %}?{{ ', ' if not loop.last }}{% endfor %}){% endset %}
  {% do adapter.insert_rows(sql, agate_table.rows) %}
  {{ return(sql) }}
{% endmacro %}
