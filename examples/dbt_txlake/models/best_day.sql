{{ config(materialized='view') }}
SELECT day, amount FROM {{ ref('revenue') }} ORDER BY amount DESC, day LIMIT 1
