{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
SELECT id, day, pieces, at FROM {{ source('raw', 'orders') }}
{% if is_incremental() %}
WHERE at > (SELECT coalesce(max(at), 0) FROM {{ this }})
{% endif %}
