{# `dbt build` works on a branch of the lake, which is published if everything passed. #}

{# An error stops dbt before the first model, so that none is built on main. #}
{% macro start_branch() %}
  {% if execute and flags.WHICH == 'build' %}
    {% do run_query('DROP BRANCH IF EXISTS `' ~ var('branch') ~ '`') %}
    {% do run_query('CREATE BRANCH `' ~ var('branch') ~ '` RETAIN 7 DAYS') %}
    {% do run_query('USE BRANCH `' ~ var('branch') ~ '`') %}
  {% endif %}
{% endmacro %}

{# The statement that dbt runs at the end; none after a failure. #}
{% macro publish_branch(results) %}
  {% if execute and flags.WHICH == 'build' %}
    {% do run_query('USE BRANCH main') %}
    {% set failed = results | rejectattr('status', 'in', ['success', 'pass', 'warn', 'no-op']) | list %}
    {% if failed %}
      {% do log('not published: branch ' ~ var('branch') ~ ', which is kept', info=True) %}
    {% else %}
      PUBLISH BRANCH `{{ var('branch') }}`
    {% endif %}
  {% endif %}
{% endmacro %}
