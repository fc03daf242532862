{% snapshot states %}
{{ config(target_schema='shop', unique_key='id', strategy='check', check_cols=['state']) }}
SELECT id, state FROM {{ ref('orders') }}
{% endsnapshot %}
