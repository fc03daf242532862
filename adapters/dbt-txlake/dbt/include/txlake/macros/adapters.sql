{# Names #}

{% macro txlake__generate_database_name(custom_database_name=none, node=none) -%}
  {%- if custom_database_name is not none and custom_database_name != target.database %}
    {%- do exceptions.raise_compiler_error("database: " ~ custom_database_name ~ ": a lake is one database of dbt's, " ~ target.database ~ "; use `schema` for a database of the lake") %}
  {%- endif %}
  {% do return(target.database) %}
{%- endmacro %}

{% macro txlake__create_schema(relation) -%}
  {%- call statement('create_schema', auto_begin=False) -%}
    create schema if not exists {{ relation.without_identifier() }}
  {%- endcall -%}
{% endmacro %}

{% macro txlake__drop_schema(relation) -%}
  {%- call statement('drop_schema', auto_begin=False) -%}
    drop schema if exists {{ relation.without_identifier() }} cascade
  {%- endcall -%}
{% endmacro %}

{% macro txlake__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=False) -%}
    drop {{ relation.type }} if exists {{ relation }}
  {%- endcall %}
{% endmacro %}

{% macro txlake__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation', auto_begin=False) -%}
    alter {{ from_relation.type }} {{ from_relation }} rename to {{ to_relation }}
  {%- endcall %}
{% endmacro %}

{% macro txlake__truncate_relation(relation) -%}
  {% call statement('truncate_relation') -%}
    truncate table {{ relation }}
  {%- endcall %}
{% endmacro %}

{% macro txlake__validate_sql(sql) -%}
  {% call statement('validate_sql') -%}
    describe query {{ sql }}
  {% endcall %}
  {{ return(load_result('validate_sql')) }}
{% endmacro %}

{% macro txlake__get_empty_subquery_sql(select_sql, select_sql_header=none) %}
    {%- if select_sql_header is not none -%}{{ select_sql_header }}{%- endif -%}
    select * from (
        {{ select_sql }}
    ) as __dbt_sbq
    where false
    limit 0
{% endmacro %}

{# A text as SQL has it. #}
{% macro txlake_text(value) -%}
  '{{ value | replace("\\", "\\\\") | replace("'", "\\'") }}'
{%- endmacro %}

{# Tables and views #}

{% macro txlake__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if language != 'sql' -%}
    {%- do exceptions.raise_compiler_error(model.name ~ ": dbt-txlake has no Python models; write the rows with txlake's own API, and name the table as a source") -%}
  {%- endif -%}
  {{ config.get('sql_header', '') }}
  {%- if config.get('contract').enforced and not temporary %}
  {{ get_assert_columns_equivalent(compiled_code) }}
  create or replace table {{ relation }} {{ get_table_columns_and_constraints() }}
  {{ txlake_table_clauses() }};
  {%- set names = txlake_names(model.columns) %}
  insert into {{ relation }} ({{ names }})
  select {{ names }} from (
    {{ compiled_code }}
  ) as model_rows
  {%- else %}
  create or replace table {{ relation }}
  {% if not temporary %}{{ txlake_table_clauses() }}{% endif %}
  as
  {{ compiled_code }}
  {%- endif %}
{%- endmacro %}

{# Refuse configs of other adapters that would change the table, and have no effect here. #}
{% macro txlake_check_configs() -%}
  {%- if config.get('file_format', 'delta') != 'delta' -%}
    {%- do exceptions.raise_compiler_error(model.name ~ ": file_format: " ~ config.get('file_format') ~ ": tables of a lake are Delta's; remove the config") -%}
  {%- endif -%}
  {%- for name in ['buckets', 'clustered_by', 'liquid_clustered_by', 'options'] if config.get(name) -%}
    {%- do exceptions.raise_compiler_error(model.name ~ ": " ~ name ~ ": dbt-txlake doesn't have this config; use partition_by, cluster_by or tblproperties") -%}
  {%- endfor -%}
{%- endmacro %}

{# What a table has besides columns: partitions or clusters, place, comment, properties. #}
{% macro txlake_table_clauses() -%}
  {{ txlake_check_configs() }}
  {{ txlake_columns('partitioned by', config.get('partition_by')) }}
  {{ txlake_columns('cluster by', config.get('cluster_by')) }}
  {%- if config.get('location_root') %}
  location {{ txlake_text(config.get('location_root') ~ '/' ~ this.identifier) }}
  {%- endif %}
  {%- if config.persist_relation_docs() and model.description %}
  comment {{ txlake_text(model.description) }}
  {%- endif %}
  {%- set properties = config.get('tblproperties') %}
  {%- if properties %}
  tblproperties (
    {%- for name in properties %}
    {{ txlake_text(name | string) }} = {{ txlake_text(properties[name] | string) }}{{ ',' if not loop.last }}
    {%- endfor %}
  )
  {%- endif %}
{%- endmacro %}

{% macro txlake_columns(words, columns) -%}
  {%- if columns -%}
    {{ words }} ({{ ([columns] if columns is string else columns) | join(', ') }})
  {%- endif -%}
{%- endmacro %}

{% macro txlake__create_view_as(relation, sql) -%}
  {{ config.get('sql_header', '') }}
  {%- if config.get('contract').enforced %}
  {{ get_assert_columns_equivalent(sql) }}
  {%- endif %}
  create or replace view {{ relation }}
  {% if config.persist_column_docs() and model.columns %}
  {%- set described = {} %}
  {%- for name in model.columns %}
    {%- do described.update({name | lower: model.columns[name].description}) %}
  {%- endfor %} (
    {%- for name in get_columns_in_query(sql) %}
    {{ adapter.quote(name) }}
      {%- if described.get(name | lower) %} comment {{ txlake_text(described[name | lower]) }}{% endif %}
      {{- ',' if not loop.last }}
    {%- endfor %}
  )
  {%- endif %}
  {%- if config.persist_relation_docs() and model.description %}
  comment {{ txlake_text(model.description) }}
  {%- endif %}
  as
  {{ sql }}
{%- endmacro %}

{# Comments of tables: views have theirs from CREATE VIEW. #}
{% macro txlake__persist_docs(relation, model, for_relation, for_columns) -%}
  {%- if relation.type != 'view' %}
    {%- if for_relation and config.persist_relation_docs() and model.description %}
      {% do run_query('comment on table ' ~ relation ~ ' is ' ~ txlake_text(model.description)) %}
    {%- endif %}
    {%- if for_columns and config.persist_column_docs() and model.columns %}
      {%- set existing = adapter.get_columns_in_relation(relation) | map(attribute='name') | list %}
      {%- set documented = validate_doc_columns(relation, model.columns, existing) %}
      {%- for name in documented if documented[name]['description'] %}
        {% do run_query('comment on column ' ~ relation ~ '.' ~ adapter.quote(name) ~ ' is ' ~ txlake_text(documented[name]['description'])) %}
      {%- endfor %}
    {%- endif %}
  {%- endif %}
{%- endmacro %}

{# In the target's database. #}
{% macro txlake__make_temp_relation(base_relation, suffix) %}
  {{ return(base_relation.incorporate(path={'identifier': base_relation.identifier ~ suffix}, type='table')) }}
{% endmacro %}

{# Columns #}

{% macro txlake__get_columns_in_relation(relation) %}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{% endmacro %}

{% macro txlake__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {%- if remove_columns %}
    {# Delta drops columns of tables whose columns are found by a mapping. #}
    {% do run_query("alter table " ~ relation ~ " set tblproperties ('delta.columnMapping.mode' = 'name')") %}
    {% do run_query('alter table ' ~ relation ~ ' drop columns (' ~ (remove_columns | map(attribute='quoted') | join(', ')) ~ ')') %}
  {%- endif %}
  {%- if add_columns %}
    {%- set added = [] %}
    {%- for column in add_columns %}{% do added.append(column.quoted ~ ' ' ~ column.data_type) %}{% endfor %}
    {% do run_query('alter table ' ~ relation ~ ' add columns (' ~ (added | join(', ')) ~ ')') %}
  {%- endif %}
{% endmacro %}

{% macro txlake__alter_column_type(relation, column_name, new_column_type) %}
  {% do run_query("alter table " ~ relation ~ " set tblproperties ('delta.enableTypeWidening' = 'true')") %}
  {% do run_query('alter table ' ~ relation ~ ' alter column ' ~ adapter.quote(column_name) ~ ' type ' ~ new_column_type) %}
{% endmacro %}

{% macro txlake__create_columns(relation, columns) %}
  {%- if columns %}{% do alter_relation_add_remove_columns(relation, columns, none) %}{% endif %}
{% endmacro %}

{# A lake has no grants. #}
{% macro txlake__apply_grants(relation, grant_config, should_revoke=True) %}
  {%- if grant_config %}
    {%- do exceptions.raise_compiler_error("grants on " ~ relation ~ ": a lake has none (" ~ (grant_config | join(', ')) ~ "); who may read and write is said by the tokens of `txlake serve` and the rights of the store. Remove the config `grants`") %}
  {%- endif %}
{% endmacro %}

{% macro txlake__copy_grants() %}{{ return(False) }}{% endmacro %}

{# Names of a contract's columns, quoted where it says so. #}
{% macro txlake_names(columns) -%}
  {%- set names = [] %}
  {%- for name in columns %}
    {%- do names.append(adapter.quote(name) if columns[name].get('quote') else name) %}
  {%- endfor %}
  {{- names | join(', ') }}
{%- endmacro %}
