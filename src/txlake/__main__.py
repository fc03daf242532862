"""`python -m txlake`: the command `txlake`."""

from __future__ import annotations

from txlake.packages import missing_package


def main() -> None:
    """Run the command with the arguments of this process. Raises SystemExit at its end, and if a
    package is missing.
    """
    try:
        from txlake.cli.app import app
    except ModuleNotFoundError as error:
        raise SystemExit(missing_package("the command txlake", error)) from None
    app(prog_name="txlake")


if __name__ == "__main__":
    main()
