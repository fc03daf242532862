"""`python -m txlake`: the command `txlake`."""

from __future__ import annotations

from txlake.cli.app import app

if __name__ == "__main__":
    app(prog_name="txlake")
