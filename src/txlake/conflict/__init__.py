"""Conflict checks: what transactions read and wrote, and the rules that compare it. Pure.

Every decision is a returned value. Source: docs/how-a-commit-works.md.
"""
