{{ config(materialized='view') }}
SELECT id, state, pieces FROM {{ ref('orders') }} WHERE state = 'open'
