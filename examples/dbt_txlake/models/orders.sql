{{ config(materialized='incremental', unique_key='id', cluster_by='day') }}
SELECT id, day, item, pieces FROM {{ ref('sales') }}
{% if is_incremental() %}
WHERE id > (SELECT coalesce(max(id), 0) FROM {{ this }})
{% endif %}
