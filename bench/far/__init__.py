"""Statements where each request to the store takes a while: medians, requests and round trips.

`python -m bench.far` runs an S3 server (moto) or Azure's (azurite) behind a proxy that delays and
counts requests, and lets txlake and other engines run the same statements against it.
"""
