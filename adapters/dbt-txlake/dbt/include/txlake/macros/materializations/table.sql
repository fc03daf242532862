{# One statement replaces the table; with hooks, comments and constraints it is one transaction. #}
{% materialization table, adapter='txlake' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {%- if existing is not none and not existing.is_table %}{% do adapter.drop_relation(existing) %}{% endif %}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement('main') -%}
    {{ get_create_table_as_sql(False, target, sql) }}
  {%- endcall %}
  {% do apply_grants(target, config.get('grants')) %}
  {% do persist_docs(target, model, for_relation=False) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% materialization view, adapter='txlake' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- set target = this.incorporate(type='view') -%}
  {% do apply_grants(target, config.get('grants')) %}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {%- if existing is not none and existing.is_table %}{% do adapter.drop_relation(existing) %}{% endif %}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement('main') -%}
    {{ get_create_view_as_sql(target, sql) }}
  {%- endcall %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
