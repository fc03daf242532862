{{ config(materialized='table') }}
SELECT o.day, sum(o.pieces * p.price) AS amount
FROM {{ ref('orders') }} AS o JOIN {{ ref('products') }} AS p ON o.item = p.item
GROUP BY o.day
