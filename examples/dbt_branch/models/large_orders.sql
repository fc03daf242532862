{{ config(materialized='view') }}
SELECT id, pieces FROM {{ ref('orders') }} WHERE pieces > 4
