"""The command `txlake`: its subcommands, their arguments and their exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from txlake.cli.connecting import (
    LAKE_MISSING,
    certificate,
    connection_of,
    lake_connection,
    parse_pairs,
    warehouse_connection,
)
from txlake.cli.exit_codes import EXIT_HELP, exit_code
from txlake.errors import TxlakeError
from txlake.release import VERSION

if TYPE_CHECKING:
    from txlake.cli.lakes import ConnectionSettings, ServerArguments
    from txlake.cli.output import Output
    from txlake.session.views.results import Result
    from txlake.sql import ScriptStatement

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
        help="The URL of the catalog's database, or `warehouse`: the warehouse's own store.",
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
        help="The level of transactions that set none: serializable, write_serializable or "
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
            callback=lambda requested: _show_version(requested=requested),
            is_eager=True,
            help="Show the release and exit.",
        ),
    ] = False,
) -> None:
    """Transactions over many statements and many tables of a lake of open Delta tables."""


def _show_version(*, requested: bool) -> None:
    """Print the release and end the command, if it was requested."""
    if requested:
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
            help="Repeat a transaction that a conflict ended, at most N times, from its BEGIN.",
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
    """Run SQL: the given text or script, standard input, or a prompt on a terminal.

    A script stops at its first error. A transaction that is open then, or at the script's end, is
    rolled back.
    """
    if sum(source is not None for source in (statements, file, execute)) > 1:
        raise typer.BadParameter("give SQL, --execute or --file, not several of them")
    connection = lake_connection(lake, catalog, isolation, storage_option)
    args = parse_pairs(param, "--param: expected NAME=VALUE")
    text = _script_text(statements if execute is None else execute, file)
    output = _output_for(form, as_json, rows)
    if text is None:
        if form in {"csv", "parquet"}:
            raise typer.BadParameter(
                f"--format {form} is for SQL that is given; give SQL or --file"
            )
        if args:
            raise typer.BadParameter("--param is for SQL that is given; give SQL or --file")
        from txlake.cli.lakes import lake_worker
        from txlake.cli.prompt import Prompt

        with _exit_on_error(output), lake_worker(connection) as worker:
            Prompt(worker, output, retries=retry, state_folder=_state_folder()).run()
        return
    _run_script(connection, text, args, output, retry)


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
    """Show a table's commits, newest first."""
    from txlake.cli import lakes

    connection = connection_of(lake, catalog, None, storage_option)
    if not lake and not lakes.is_table_path(table):
        raise typer.BadParameter(LAKE_MISSING)
    _print_listing(as_json, lambda: lakes.history(connection, table, limit))


@app.command()
def locks(
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Show the locks held and waited for, as sys.dm_tran_locks does."""
    from txlake.cli import lakes

    connection = lake_connection(lake, catalog, None, storage_option)
    _print_listing(as_json, lambda: lakes.locks(connection))


@app.command()
def transactions(
    kill: Annotated[
        str | None,
        typer.Option(
            metavar="ID", show_default=False, help="End this transaction; it is rolled back."
        ),
    ] = None,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Show the open transactions, oldest first, or end one."""
    from txlake.cli import lakes

    connection = lake_connection(lake, catalog, None, storage_option)
    if kill is None:
        _print_listing(as_json, lambda: lakes.transactions(connection))
        return
    output = _output(as_json, 0)
    with _exit_on_error(output):
        lakes.kill(connection, kill)
        output.note(f"transaction {kill} was ended: nothing of it is kept")


@app.command()
def branches(
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Show the branches and tags, what they changed, and the bytes that they alone keep."""
    from txlake.cli import lakes

    connection = lake_connection(lake, catalog, None, storage_option)
    _print_listing(as_json, lambda: lakes.branches(connection))


@app.command()
def conflicts(
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Show the conflicts that aborted transactions, oldest first."""
    from txlake.cli import lakes

    connection = lake_connection(lake, catalog, None, storage_option)
    _print_listing(as_json, lambda: lakes.conflicts(connection))


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
    """Recover a catalog that was lost, or restored from a backup, from the tables' logs."""
    from txlake.cli import lakes

    connection = lake_connection(lake, catalog, None, storage_option)
    _print_listing(as_json, lambda: lakes.recover(connection, locations or ()))


catalog_commands = typer.Typer(
    help="Commands for the lake's catalog.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(catalog_commands, name="catalog")


@catalog_commands.command("move")
def move_catalog(
    to: Annotated[
        str,
        typer.Argument(metavar="TO", help="The URL of an empty database or store, or `warehouse`."),
    ],
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Move the lake's catalog to another database or store, while nobody works."""
    from txlake.cli import lakes

    connection = lake_connection(lake, catalog, None, storage_option)
    output = _output(as_json, 0)
    with _exit_on_error(output):
        lakes.move_catalog(connection, to)
        output.note(f"the catalog was moved: connect with --catalog {to} from here on")


Warehouse = Annotated[
    str | None, typer.Argument(metavar="[WAREHOUSE]", show_default=False, help="As --lake.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")]
Host = Annotated[
    str, typer.Option(help="The address to listen at; any other than this needs tokens.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        show_default=False,
        help="The callers: a JSON list of objects with token, name, read_only, branches, expires.",
    ),
]
Certificate = Annotated[
    Path | None, typer.Option(show_default=False, help="TLS: the certificate's chain, PEM.")
]
CertificateKey = Annotated[
    Path | None, typer.Option(show_default=False, help="TLS: the certificate's key, PEM.")
]


@app.command(epilog=EXIT_HELP)
def maintain(
    warehouse: Warehouse = None,
    once: Annotated[
        bool, typer.Option("--once", help="Do one round, which is the default.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            show_default=False,
            help="Do a round each 30s, 10m or 2h, until the command is stopped.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            show_default=False,
            help="After so long, a round begins nothing new.",
        ),
    ] = None,
    budget_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            show_default=False,
            help="How much data a round reads and writes at most, such as 50gb.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is due and why, and do nothing.")
    ] = False,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Pack small files, VACUUM, write checkpoints and so on, where a lake's tables need it.

    [WAREHOUSE] may also be the folder or URL of one Delta table.
    """
    from txlake.cli import maintaining
    from txlake.maintenance.arguments import budget_of, duration_ms

    if every is not None and (once or dry_run):
        raise typer.BadParameter("give --every, or else --once or --dry-run")
    connection = warehouse_connection(warehouse, lake, catalog, storage_option)
    output = _output(as_json, 0)
    with _exit_on_error(output):
        allowed = budget_of(budget, budget_bytes)
        if every is not None:
            every_ms = duration_ms(every, "every")
            maintaining.run_rounds(connection, allowed, every_ms, output.listing)
            return
        rounds = maintaining.plan if dry_run else maintaining.run_once
        output.listing(rounds(connection, allowed))


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
    flight_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="Serve Flight SQL too, for ADBC and JDBC; 0: a free port.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="How many requests run at once, in each process.")
    ] = 8,
    processes: Annotated[
        int, typer.Option(min=1, max=256, help="How many processes serve the lake.")
    ] = 1,
    statement_timeout: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="How long a script may run."),
    ] = 300,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Serve a lake's open tables to other engines, by Unity Catalog's Delta API."""
    from txlake.cli import lakes
    from txlake.cli.lakes import ServerArguments

    connection = warehouse_connection(warehouse, lake, catalog, storage_option)
    output = _output(as_json, 0)
    arguments = ServerArguments(
        host=host,
        port=port,
        token_file=token_file,
        certificate=certificate(tls_certificate, tls_key),
        lends_credentials=lend_credentials,
        workers=workers,
        statement_timeout_s=statement_timeout,
        flight_port=flight_port,
        processes=processes,
    )
    _run_server(lakes.serve, connection, arguments, output, "serving at")


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
    """Show a lake in a browser: transactions, waits, conflicts, history, tables, a playground."""
    from txlake.cli import lakes
    from txlake.cli.lakes import ServerArguments

    connection = warehouse_connection(warehouse, lake, catalog, storage_option)
    output = _output(as_json, 0)
    arguments = ServerArguments(
        host=host,
        port=port,
        token_file=token_file,
        certificate=certificate(tls_certificate, tls_key),
    )
    _run_server(lakes.serve_console, connection, arguments, output, "the console is at")


@app.command(epilog=EXIT_HELP)
def mcp(
    warehouse: Warehouse = None,
    name: Annotated[
        str, typer.Option(help="The owner of the branches that the agent creates.")
    ] = "agent",
    allow_publish: Annotated[
        bool,
        typer.Option("--allow-publish", help="Let agents publish branches of their own."),
    ] = False,
    rows: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many rows a tool returns at most.")
    ] = 100,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, in place of standard input and output.")
    ] = False,
    port: Port = 8085,
    host: Host = "127.0.0.1",
    token_file: TokenFile = None,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    lake: Lake = None,
    catalog: Catalog = None,
    storage_option: Options = None,
    as_json: Json = False,
) -> None:
    """Give agents tools for a lake (Model Context Protocol): they read, and write on branches."""
    from txlake.cli import lakes
    from txlake.cli.lakes import ServerArguments, ToolArguments

    connection = warehouse_connection(warehouse, lake, catalog, storage_option)
    output = _output(as_json, 0)
    arguments = ToolArguments(name=name, rows_max=rows, may_publish=allow_publish)
    server = ServerArguments(
        host=host,
        port=port,
        token_file=token_file,
        certificate=certificate(tls_certificate, tls_key),
    )
    if not http and (token_file or tls_certificate or tls_key):
        raise typer.BadParameter("tokens and TLS are for --http")
    with _exit_on_error(output):
        lakes.serve_tools(
            connection,
            arguments,
            server if http else None,
            lambda url: output.note(f"serving tools at {url}/mcp"),
        )


def _run_server(
    serve: Callable[[ConnectionSettings, ServerArguments, Callable[[str], None]], None],
    connection: ConnectionSettings,
    arguments: ServerArguments,
    output: Output,
    started_text: str,
) -> None:
    """Run a server, and print its address once it has started."""
    with _exit_on_error(output):
        serve(connection, arguments, lambda url: output.note(f"{started_text} {url}"))


def _run_script(
    connection: ConnectionSettings, text: str, args: Mapping[str, str], output: Output, retries: int
) -> None:
    """Run a script and write its results; an error ends the command with its exit code.

    The whole script is parsed before anything runs.
    """
    from txlake.cli.export import ExportOutput
    from txlake.cli.lakes import lake_worker
    from txlake.cli.scripts import ScriptRunner
    from txlake.sql import parse_script
    from txlake.system import System

    runner: ScriptRunner | None = None
    with _exit_on_error(output, lambda: None if runner is None else runner.current):
        pieces = parse_script(text, args)  # syntax errors are reported before anything runs
        export = output if isinstance(output, ExportOutput) else None
        if export is not None:
            export.check(pieces)
        if pieces:
            with lake_worker(connection) as worker:
                runner = ScriptRunner(
                    worker=worker, output=output, system=System(), retries=retries
                )
                runner.run_script(pieces)
        if export is not None:
            export.write()


def _print_listing(as_json: bool, fetch: Callable[[], Result]) -> None:
    """Print the rows that `fetch` returns; an error ends the command with its exit code."""
    output = _output(as_json, 0)
    with _exit_on_error(output):
        output.listing(fetch())


@contextmanager
def _exit_on_error(
    output: Output, current: Callable[[], ScriptStatement | None] = lambda: None
) -> Iterator[None]:
    """Print a txlake error or an interrupt of the block, and end the command with its exit code.

    A broken pipe ends the command silently. Other errors pass.
    """
    try:
        yield
        sys.stdout.flush()
    except (TxlakeError, KeyboardInterrupt) as error:
        output.error(error, current())
        raise typer.Exit(exit_code(error)) from error
    except BrokenPipeError as error:
        # Otherwise Python reports an error when it flushes the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(exit_code(error)) from error


def _output(as_json: bool, rows: int) -> Output:
    """Return JSON lines, or tables for people with at most `rows` rows, 0 for all."""
    from txlake.cli.output import JsonOutput, TableOutput

    return JsonOutput() if as_json else TableOutput(rows or None)


def _output_for(form: Kind | None, as_json: bool, rows: int) -> Output:
    """Return the output for the results of SQL.

    Raises BadParameter for formats that contradict each other, and for Parquet to a terminal.
    """
    if as_json and form not in {None, "json"}:
        raise typer.BadParameter(f"--json is --format json; found --format {form} as well")
    if form == "csv" or form == "parquet":
        from txlake.cli.export import ExportOutput

        if form == "parquet" and sys.stdout.isatty():
            raise typer.BadParameter("--format parquet is for a file or a pipe, not for a terminal")
        return ExportOutput(form)
    return _output(as_json or form == "json", rows)


def _script_text(statements: str | None, file: Path | None) -> str | None:
    """Return the script: the given text, the file or standard input; None for a prompt.

    A prompt is for a terminal without a text and a file; the file `-` is standard input. Raises
    BadParameter for a file that can't be read.
    """
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


def _state_folder() -> Path:
    """Return the folder of the prompt's history, by the XDG base directories."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "txlake"
