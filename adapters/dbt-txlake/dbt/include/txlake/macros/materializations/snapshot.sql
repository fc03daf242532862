{# The staged rows are the source of one MERGE: no table is made in between. #}
{% materialization snapshot, adapter='txlake' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set unique_key = config.get('unique_key') -%}
  {%- if existing is not none and not existing.is_table %}
    {% do exceptions.relation_wrong_type(existing, 'table') %}
  {%- endif %}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- set strategy = strategy_dispatch(config.get('strategy'))(model, 'snapshotted_data', 'source_data', model['config'], existing is not none) %}
  {%- if existing is none %}
    {%- set rows = build_snapshot_table(strategy, model['compiled_code']) %}
    {%- set final_sql = get_create_table_as_sql(False, target, rows) %}
  {%- else %}
    {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() %}
    {{ adapter.assert_valid_snapshot_target_given_strategy(target, columns, strategy) }}
    {%- set rows = snapshot_staging_table(strategy, sql, target) %}
    {%- set internal = ['dbt_change_type', 'dbt_unique_key'] %}
    {%- if unique_key is not string %}
      {%- for _ in unique_key or [] %}{% do internal.append('dbt_unique_key_' ~ loop.index) %}{% endfor %}
    {%- endif %}
    {%- set had = adapter.get_columns_in_relation(target) | map(attribute='name') | map('lower') | list %}
    {%- set added, names = [], [] %}
    {%- for column in adapter.get_column_schema_from_query('select * from (\n' ~ rows ~ '\n) as staged where false') if column.name | lower not in internal %}
      {%- do names.append(column.quoted) %}
      {%- if column.name | lower not in had %}{% do added.append(column) %}{% endif %}
    {%- endfor %}
    {% do create_columns(target, added) %}
    {%- set final_sql = snapshot_merge_sql(target=target, source='(\n' ~ rows ~ '\n)', insert_cols=names) %}
  {%- endif %}

  {{ check_time_data_types(rows) }}
  {% call statement('main') -%}
    {{ final_sql }}
  {%- endcall %}
  {% do apply_grants(target, config.get('grants')) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% macro txlake__snapshot_merge_sql(target, source, insert_cols) %}
  {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() %}
  {%- set valid_to = 'DBT_INTERNAL_DEST.' ~ columns.dbt_valid_to %}
  merge into {{ target }} as DBT_INTERNAL_DEST
  using {{ source }} as DBT_INTERNAL_SOURCE
  on DBT_INTERNAL_SOURCE.{{ columns.dbt_scd_id }} = DBT_INTERNAL_DEST.{{ columns.dbt_scd_id }}
  when matched and DBT_INTERNAL_SOURCE.dbt_change_type in ('update', 'delete') and ({{ valid_to }} is null
    {%- if config.get('dbt_valid_to_current') %} or {{ valid_to }} = {{ config.get('dbt_valid_to_current') }}{% endif %})
    then update set {{ columns.dbt_valid_to }} = DBT_INTERNAL_SOURCE.{{ columns.dbt_valid_to }}
  when not matched and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert'
    then insert ({{ insert_cols | join(', ') }})
    values ({% for name in insert_cols %}DBT_INTERNAL_SOURCE.{{ name }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}
