{% macro txlake__can_clone_table() %}{{ return(True) }}{% endmacro %}

{% macro txlake__create_or_replace_clone(this_relation, defer_relation) %}
  create or replace table {{ this_relation }} shallow clone {{ defer_relation }}
{% endmacro %}

{# A table of another environment becomes a shallow clone, anything else a view of it. #}
{% materialization clone, adapter='txlake' %}
  {%- set existing = load_cached_relation(this) -%}
  {%- if not defer_relation %}
    {{ log('no relation found in the state for ' ~ model.unique_id, info=True) }}
    {{ return({'relations': []}) }}
  {%- elif existing and not flags.FULL_REFRESH %}
    {{ log(existing ~ ' already exists', info=True) }}
    {{ return({'relations': []}) }}
  {%- endif %}
  {%- set other = load_cached_relation(defer_relation) %}
  {%- if other is none or not other.is_table or not can_clone_table() %}
    {{ return(context['materialization_view_txlake']()) }}
  {%- endif %}
  {%- set target = this.incorporate(type='table') %}
  {%- if existing is not none and not existing.is_table %}{% do adapter.drop_relation(existing) %}{% endif %}
  {%- if target.render() == defer_relation.render() %}
    {{ log(target ~ ' is its own source: skipping clone for relation', info=True) }}
  {%- else %}
    {% call statement('main') -%}
      {{ create_or_replace_clone(target, defer_relation) }}
    {%- endcall %}
  {%- endif %}
  {% do apply_grants(target, config.get('grants')) %}
  {% do persist_docs(target, model) %}
  {% do adapter.commit() %}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
