"""The command `txlake`: its commands, their arguments and how they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from txlake.cli.failures import EXIT_HELP, exit_code
from txlake.errors import TxlakeError
from txlake.release import VERSION

if TYPE_CHECKING:
    from txlake.cli.lakes import Place
    from txlake.cli.output import Output
    from txlake.sql import ScriptStatement
    from txlake.views.results import Result

app = typer.Typer(
    name="txlake",
    help="Transactions over many statements and many tables of a lake of open Delta tables.\n\n"
    + EXIT_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_ALLOW_OUTSIDE = "TXLAKE_ALLOW_OUTSIDE_PATHS"
_TOKEN = "TXLAKE_TOKEN"
_NO_LAKE = "no lake is named: say --lake or set TXLAKE_LAKE"

Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        "-l",
        envvar="TXLAKE_LAKE",
        help="The warehouse: a folder or a URL.",
        show_default=False,
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        envvar="TXLAKE_CATALOG",
        show_default=False,
        help="The URL of the catalog's database; SQLite in a local warehouse without it.",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        show_default=False,
        help="A credential or setting of the object store; may be repeated.",
    ),
]
Isolation = Annotated[
    str | None,
    typer.Option(
        show_default=False,
        help="The level of transactions that ask for none: serializable, write_serializable or "
        "snapshot.",
    ),
]
Kind = Literal["table", "json", "csv", "parquet"]
Form = Annotated[
    Kind | None,
    typer.Option(
        "--format",
        show_default=False,
        help="How rows are written: table (drawn), json (as --json), or csv or parquet, which are "
        "the rows of one query as one file on standard output.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="JSON lines; notes and errors too, on standard error.")
]


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda asked: _show_version(asked=asked),
            is_eager=True,
            help="Show the release and exit.",
        ),
    ] = False,
) -> None:
    """Transactions over many statements and many tables of a lake of open Delta tables."""


def _show_version(*, asked: bool) -> None:
    if asked:
        typer.echo(f"txlake {VERSION}")
        raise typer.Exit


@app.command(epilog=EXIT_HELP)
def sql(
    statements: Annotated[
        str | None, typer.Argument(metavar="[SQL]", show_default=False, help="Statements, by `;`.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            show_default=False,
            help="A script; - is standard input.",
        ),
    ] = None,
    execute: Annotated[
        str | None,
        typer.Option("--execute", "-e", metavar="SQL", show_default=False, help="As [SQL]."),
    ] = None,
    retry: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Run a transaction that a conflict ended again, at most N times, from its BEGIN.",
        ),
    ] = 0,
    rows: Annotated[
        int, typer.Option(min=0, metavar="N", help="Draw N rows of a result; 0 for all of them.")
    ] = 100,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            show_default=False,
            help="The value, a text, of the marker :NAME in the SQL; may be repeated.",
        ),
    ] = None,
    lake: Lake = None,
    catalog: Catalog = None,
    isolation: Isolation = None,
    storage_option: Options = None,
    form: Form = None,
    as_json: Json = False,
) -> None:
    """Run SQL: the text or script given, standard input, or a prompt on a terminal.

    A script stops at its first error. What it says in a transaction that is still open then, or
    when it ends, is rolled back.
    """
    if sum(given is not None for given in (statements, file, execute)) > 1:
        raise typer.BadParameter("give SQL, --execute or --file, not several of them")
    place = _lake(lake, catalog, isolation, storage_option)
    args = _named(param, "--param: expected NAME=VALUE")
    text = _text(statements if execute is None else execute, file)
    output = _output_as(form, as_json, rows)
    if text is None:
        if form in {"csv", "parquet"}:
            raise typer.BadParameter(
                f"--format {form} is for SQL that is given; give SQL or --file"
            )
        if args:
            raise typer.BadParameter("--param is for SQL that is given; give SQL or --file")
        from txlake.cli.lakes import working
        from txlake.cli.prompt import Prompt

        with _ending(output), working(place) as worker:
            Prompt(worker, output, retries=retry, state_folder=_state_folder()).run()
        return
    _run_script(place, text, args, output, retry)


@app.command()
def history(
    table: Annotated[str, typer.Argument(help="A table's name, or its folder or URL.")],
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, show_default=False, help="The newest N commits."),
    ] = None,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """What the commits of a table say of themselves, newest first."""
    from txlake.cli import lakes

    place = _place(lake, catalog, None, storage_option)
    if not lake and not lakes.names_place(table):
        raise typer.BadParameter(_NO_LAKE)
    _list(as_json, lambda: lakes.history(place, table, limit))


@app.command()
def locks(
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """The locks held and waited for, as sys.dm_tran_locks shows them."""
    from txlake.cli import lakes

    place = _lake(lake, catalog, None, storage_option)
    _list(as_json, lambda: lakes.locks(place))


@app.command()
def transactions(
    kill: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="End this transaction; nothing of it is kept."
        ),
    ] = None,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """The open transactions, oldest first; or the end of one."""
    from txlake.cli import lakes

    place = _lake(lake, catalog, None, storage_option)
    if kill is None:
        _list(as_json, lambda: lakes.transactions(place))
        return
    output = _output(as_json, 0)
    with _ending(output):
        lakes.kill(place, kill)
        output.note(f"transaction {kill} was ended: nothing of it is kept")


@app.command()
def conflicts(
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """The conflicts that transactions lost by, oldest first."""
    from txlake.cli import lakes

    place = _lake(lake, catalog, None, storage_option)
    _list(as_json, lambda: lakes.conflicts(place))


@app.command()
def recover(
    locations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOCATION]...", show_default=False, help="Tables outside of the warehouse."
        ),
    ] = None,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Bring a catalog that was lost, or is from a backup, up to the logs of the tables."""
    from txlake.cli import lakes

    place = _lake(lake, catalog, None, storage_option)
    _list(as_json, lambda: lakes.recover(place, locations or ()))


Warehouse = Annotated[
    str | None, typer.Argument(metavar="[WAREHOUSE]", show_default=False, help="As --lake.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")]
Host = Annotated[
    str, typer.Option(help="The address to listen at; another one than this needs tokens.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        show_default=False,
        help="Who may call: a JSON list of objects with token, name, read_only and expires.",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option(show_default=False, help="TLS: the certificate's chain, PEM.")
]
CertificateKey = Annotated[
    Path | None, typer.Option(show_default=False, help="TLS: the certificate's key, PEM.")
]


@app.command(epilog=EXIT_HELP)
def serve(
    warehouse: Warehouse = None,
    port: Port = 8080,
    host: Host = "127.0.0.1",
    token_file: TokenFile = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    lend_credentials: Annotated[
        bool,
        typer.Option(
            "--lend-credentials",
            help="Give the lake's own storage options to clients that may write.",
        ),
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="How many requests are carried out at once.")
    ] = 8,
    statement_timeout: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="How long a script of SQL may run."),
    ] = 300,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Serve a lake's open tables to other engines, by Unity Catalog's Delta API."""
    from txlake.cli import lakes
    from txlake.cli.lakes import ServedAs

    place = _served(warehouse, lake, catalog, storage_option)
    output = _output(as_json, 0)
    how = ServedAs(
        host=host,
        port=port,
        token_file=token_file,
        certificate=_certificate(tls_certificate, tls_key),
        lends_credentials=lend_credentials,
        workers=workers,
        statement_timeout_s=statement_timeout,
    )
    with _ending(output):
        lakes.serve(place, how, lambda url: output.note(f"serving at {url}"))


@app.command(epilog=EXIT_HELP)
def console(
    warehouse: Warehouse = None,
    port: Port = 8090,
    host: Host = "127.0.0.1",
    token_file: TokenFile = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Show a lake in a browser: who works, waits and lost, its history, tables and a playground."""
    from txlake.cli import lakes
    from txlake.cli.lakes import ServedAs

    place = _served(warehouse, lake, catalog, storage_option)
    output = _output(as_json, 0)
    how = ServedAs(
        host=host,
        port=port,
        token_file=token_file,
        certificate=_certificate(tls_certificate, tls_key),
    )
    with _ending(output):
        lakes.show(place, how, lambda url: output.note(f"the console is at {url}"))


def _served(
    warehouse: str | None, lake: str | None, catalog: str | None, options: list[str] | None
) -> Place:
    if warehouse and lake and warehouse != lake:
        raise typer.BadParameter("give WAREHOUSE or --lake, not both")
    return _lake(warehouse or lake, catalog, None, options)


def _certificate(chain: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    if (chain is None) != (key is None):
        raise typer.BadParameter("give --tls-certificate and --tls-key together")
    return None if chain is None or key is None else (chain, key)


def _run_script(
    place: Place, text: str, args: Mapping[str, str], output: Output, retries: int
) -> None:
    from txlake.cli.export import Exported
    from txlake.cli.lakes import working
    from txlake.cli.scripts import Runner
    from txlake.sql import parse_script
    from txlake.system import System

    runner: Runner | None = None
    with _ending(output, lambda: None if runner is None else runner.at):
        pieces = parse_script(text, args)  # what isn't understood is said before anything runs
        exported = output if isinstance(output, Exported) else None
        if exported is not None:
            exported.check(pieces)
        if pieces:
            with working(place) as worker:
                runner = Runner(worker=worker, output=output, system=System(), retries=retries)
                runner.script(pieces)
        if exported is not None:
            exported.write()


def _list(as_json: bool, look: Callable[[], Result]) -> None:
    output = _output(as_json, 0)
    with _ending(output):
        output.listing(look())


@contextmanager
def _ending(
    output: Output, at: Callable[[], ScriptStatement | None] = lambda: None
) -> Iterator[None]:
    """What goes wrong inside is shown, and is the exit code."""
    try:
        yield
        sys.stdout.flush()
    except (TxlakeError, KeyboardInterrupt) as error:
        output.error(error, at())
        raise typer.Exit(exit_code(error)) from error
    except BrokenPipeError as error:
        # Python would complain when it flushes the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(exit_code(error)) from error


def _output(as_json: bool, rows: int) -> Output:
    from txlake.cli.output import Drawn, JsonLines

    return JsonLines() if as_json else Drawn(rows or None)


def _output_as(form: Kind | None, as_json: bool, rows: int) -> Output:
    """Where the answers of SQL go."""
    if as_json and form not in {None, "json"}:
        raise typer.BadParameter(f"--json is --format json; found --format {form} besides")
    if form == "csv" or form == "parquet":
        from txlake.cli.export import Exported

        if form == "parquet" and sys.stdout.isatty():
            raise typer.BadParameter("--format parquet is for a file or a pipe, not for a terminal")
        return Exported(form)
    return _output(as_json or form == "json", rows)


def _text(statements: str | None, file: Path | None) -> str | None:
    """The script; None for a prompt."""
    if statements is not None:
        return statements
    if file is not None and str(file) != "-":
        try:
            return file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{file} can't be read: {error}") from error
    if file is None and sys.stdin.isatty():
        return None
    return sys.stdin.read()


def _lake(
    lake: str | None, catalog: str | None, isolation: str | None, options: list[str] | None
) -> Place:
    if not lake:
        raise typer.BadParameter(_NO_LAKE)
    return _place(lake, catalog, isolation, options)


def _place(
    lake: str | None, catalog: str | None, isolation: str | None, options: list[str] | None
) -> Place:
    from txlake.cli.lakes import Place

    allowed = os.environ.get(_ALLOW_OUTSIDE, "")
    return Place(
        location=lake,
        catalog=catalog,
        isolation=isolation,
        storage_options=_named(options, "--storage-option: expected KEY=VALUE"),
        allow_outside_paths=tuple(filter(None, allowed.split(","))),
        token=os.environ.get(_TOKEN) or None,
    )


def _named(given: Sequence[str] | None, expected: str) -> dict[str, str]:
    """Texts like NAME=VALUE by their names; a message says no value, which may be a secret."""
    named: dict[str, str] = {}
    for one in given or ():
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{expected}, found no '=' after a name")
        if name in named:
            raise typer.BadParameter(f"{expected}, found {name!r} twice")
        named[name] = value
    return named


def _state_folder() -> Path:
    """Where the prompt's history is kept, as the XDG base directories say."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "txlake"
