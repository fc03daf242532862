{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', partition_by='day') }}
SELECT id, day, state, pieces, at FROM {{ source('raw', 'orders') }}
{% if is_incremental() %}
WHERE at > (SELECT max(at) FROM {{ this }})
{% endif %}
