{{ config(materialized='table') }}
SELECT day, sum(pieces) AS pieces FROM {{ ref('orders') }} GROUP BY day
