{# The model's query is the source of one INSERT or MERGE: no table is made in between. #}
{% materialization incremental, adapter='txlake' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {%- set unique_key = config.get('unique_key') -%}
  {%- set strategy = config.get('incremental_strategy') or ('merge' if unique_key else 'append') -%}
  {%- set strategy_sql = adapter.get_incremental_strategy_macro(context, strategy) -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {%- if existing is not none and not existing.is_table %}{% do adapter.drop_relation(existing) %}{% endif %}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {%- if existing is none or not existing.is_table or should_full_refresh() %}
    {%- set build_sql = get_create_table_as_sql(False, target, sql) %}
  {%- else %}
    {%- set source = '(\n' ~ sql ~ '\n)' %}
    {%- set brought = process_schema_changes(on_schema_change, source, existing) | map(attribute='name') | map('lower') | list %}
    {%- set columns = [] %}
    {%- for column in adapter.get_columns_in_relation(existing) if not brought or column.name | lower in brought %}
      {%- do columns.append(column) %}
    {%- endfor %}
    {%- set predicates = config.get('predicates') or config.get('incremental_predicates') %}
    {%- set build_sql = strategy_sql({'target_relation': target, 'temp_relation': source, 'unique_key': unique_key, 'dest_columns': columns, 'incremental_predicates': predicates}) %}
  {%- endif %}

  {% call statement('main') -%}
    {{ build_sql }}
  {%- endcall %}
  {% do apply_grants(target, config.get('grants')) %}
  {% do persist_docs(target, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{# The source is a query in parentheses. #}
{% macro txlake__check_for_schema_changes(source_relation, target_relation) %}
  {%- set source = adapter.get_column_schema_from_query('select * from ' ~ source_relation ~ ' as model_rows where false') %}
  {%- set target = adapter.get_columns_in_relation(target_relation) %}
  {%- set added = diff_columns(source, target) %}
  {%- set removed = diff_columns(target, source) %}
  {%- set types = diff_column_data_types(source, target) %}
  {{ return({
    'schema_changed': (added or removed or types) | length > 0,
    'source_not_in_target': added,
    'target_not_in_source': removed,
    'source_columns': source,
    'target_columns': target,
    'new_target_types': types,
  }) }}
{% endmacro %}

{% macro txlake__get_incremental_default_sql(arg_dict) %}
  {{ return(get_incremental_append_sql(arg_dict)) }}
{% endmacro %}

{% macro txlake__get_incremental_append_sql(arg_dict) %}
  {%- set names = arg_dict['dest_columns'] | map(attribute='quoted') | join(', ') %}
  insert into {{ arg_dict['target_relation'] }} ({{ names }})
  select {{ names }} from {{ arg_dict['temp_relation'] }} as model_rows
{% endmacro %}

{% macro txlake__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) %}
  {%- set names = dest_columns | map(attribute='quoted') | list %}
  {%- set updated = get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), dest_columns) or names %}
  {%- set conditions = [] + (incremental_predicates or []) %}
  {%- for key in ([unique_key] if unique_key is string else unique_key or []) %}
    {%- do conditions.append('DBT_INTERNAL_SOURCE.' ~ key ~ ' = DBT_INTERNAL_DEST.' ~ key) %}
  {%- endfor %}
  {%- if not unique_key %}{% do conditions.append('false') %}{% endif %}
  merge into {{ target }} as DBT_INTERNAL_DEST
  using {{ source }} as DBT_INTERNAL_SOURCE
  on ({{ conditions | join(') and (') }})
  {%- if unique_key %}
  when matched then update set
    {%- for name in updated %}
    {{ name }} = DBT_INTERNAL_SOURCE.{{ name }}{{ ',' if not loop.last }}
    {%- endfor %}
  {%- endif %}
  when not matched then insert ({{ names | join(', ') }})
  values ({% for name in names %}DBT_INTERNAL_SOURCE.{{ name }}{{ ', ' if not loop.last }}{% endfor %})
{% endmacro %}

{# The query is evaluated once, before rows are deleted. Its columns get names of their own, so that
   predicates are about the table's, as in a DELETE. #}
{% macro txlake__get_delete_insert_merge_sql(target, source, unique_key, dest_columns, incremental_predicates) %}
  {%- set names = dest_columns | map(attribute='quoted') | join(', ') %}
  {%- set keys = [unique_key] if unique_key is string else unique_key or [] %}
  {%- if not keys %}
  insert into {{ target }} ({{ names }})
  select {{ names }} from {{ source }} as model_rows
  {%- else %}
  {%- set brought = dest_columns | map(attribute='name') | map('lower') | list %}
  {%- set values, new_names = [], {} %}
  {%- for column in adapter.get_columns_in_relation(target) %}
    {%- do values.append((column.quoted if column.name | lower in brought else 'null') ~ ' as dbt_' ~ loop.index) %}
    {%- do new_names.update({column.name | lower: 'dbt_' ~ loop.index}) %}
  {%- endfor %}
  {%- set conditions = [] + (incremental_predicates or []) %}
  {%- for key in keys %}
    {%- if key | lower not in new_names %}
      {%- do exceptions.raise_compiler_error(model.name ~ ': unique_key ' ~ key ~ ' is no column of ' ~ target) %}
    {%- endif %}
    {%- do conditions.append('DBT_INTERNAL_DEST.' ~ key ~ ' = DBT_INTERNAL_SOURCE.' ~ new_names[key | lower]) %}
  {%- endfor %}
  insert into {{ target }} as DBT_INTERNAL_DEST
  replace on ({{ conditions | join(') and (') }})
  (select {{ values | join(', ') }} from {{ source }} as model_rows) as DBT_INTERNAL_SOURCE
  {%- endif %}
{% endmacro %}

{# Replace the partitions that the new rows fall into, or the whole table. #}
{% macro txlake__get_incremental_insert_overwrite_sql(arg_dict) %}
  {%- set names = arg_dict['dest_columns'] | map(attribute='quoted') | join(', ') %}
  {%- set by = config.get('partition_by') or [] %}
  {%- set by = [by] if by is string else by %}
  insert overwrite {{ arg_dict['target_relation'] }}
  {%- if by %} partition ({{ by | join(', ') }}){% endif %} ({{ names }})
  select {{ names }} from {{ arg_dict['temp_relation'] }} as model_rows
{% endmacro %}

{# Replace the rows of the batch's time. #}
{% macro txlake__get_incremental_microbatch_sql(arg_dict) %}
  {%- set names = arg_dict['dest_columns'] | map(attribute='quoted') | join(', ') %}
  {%- set time = model.config.event_time %}
  {%- set conditions = [] + (arg_dict['incremental_predicates'] or []) %}
  {%- if model.batch and model.batch.event_time_start %}
    {%- do conditions.append(time ~ " >= timestamp '" ~ model.batch.event_time_start.strftime('%Y-%m-%d %H:%M:%S') ~ "Z'") %}
  {%- endif %}
  {%- if model.batch and model.batch.event_time_end %}
    {%- do conditions.append(time ~ " < timestamp '" ~ model.batch.event_time_end.strftime('%Y-%m-%d %H:%M:%S') ~ "Z'") %}
  {%- endif %}
  {%- if not conditions %}
    {%- do exceptions.raise_compiler_error(model.name ~ ': microbatch: the batch has no begin and no end') %}
  {%- endif %}
  insert into {{ arg_dict['target_relation'] }} ({{ names }})
  replace where {{ conditions | join(' and ') }}
  select {{ names }} from {{ arg_dict['temp_relation'] }} as model_rows
{% endmacro %}
