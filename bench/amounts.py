"""How amounts are written."""

from __future__ import annotations


def amount(value: float, unit: str) -> str:
    """Three digits that matter, with the unit."""
    if value >= 100:
        digits = 0
    elif value >= 10:
        digits = 1
    else:
        digits = 2
    text = f"{value:,.{digits}f}" if value >= 0.1 else f"{value:.3f}"
    return f"{text} {unit}"


def count(amount: int) -> str:
    """20M, 200,000, 1,000."""
    whole, rest = divmod(amount, 1_000_000)
    return f"{whole}M" if whole and not rest else f"{amount:,}"
