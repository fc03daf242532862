"""What each of obstore's errors becomes."""

from __future__ import annotations

import obstore.exceptions
import pytest

from txlake.errors import InvalidRequest, TxlakeError, Unavailable
from txlake.redaction import redact, secrets_of
from txlake.storage.store_errors import RequestOutcome, request_outcome, translate_error

E = obstore.exceptions
REFUSED, NOT_SENT, LOST = RequestOutcome.REFUSED, RequestOutcome.NOT_SENT, RequestOutcome.LOST


def _answer(status: int, body: str = "") -> str:
    return (
        f"Error performing PUT http://s/b - Server returned non-2xx status code: {status} X: {body}"
    )


TABLE: list[tuple[Exception, RequestOutcome, type[TxlakeError]]] = [
    (E.PermissionDeniedError(_answer(403)), REFUSED, InvalidRequest),
    (E.UnauthenticatedError(_answer(401)), REFUSED, InvalidRequest),
    (E.NotSupportedError("no"), REFUSED, InvalidRequest),
    (E.InvalidPathError("a\nb"), REFUSED, InvalidRequest),
    (E.UnknownConfigurationKeyError("foo"), REFUSED, InvalidRequest),
    (E.AlreadyExistsError(_answer(409)), LOST, Unavailable),
    (E.PreconditionError(_answer(412)), REFUSED, InvalidRequest),
    (E.NotModifiedError(_answer(304)), LOST, Unavailable),
    (E.JoinError("a task was cancelled"), LOST, Unavailable),
    (E.BaseError("?"), LOST, Unavailable),
    (E.GenericError("?"), LOST, Unavailable),
    (E.GenericError(_answer(400, "InvalidArgument")), REFUSED, InvalidRequest),
    (E.GenericError(_answer(400, "RequestTimeout")), LOST, Unavailable),
    (E.GenericError(_answer(408)), LOST, Unavailable),
    (E.GenericError(_answer(409)), LOST, Unavailable),
    (E.GenericError(_answer(429)), LOST, Unavailable),
    (E.GenericError(_answer(500)), LOST, Unavailable),
    (E.GenericError(_answer(501)), REFUSED, InvalidRequest),
    (E.GenericError(_answer(503)), LOST, Unavailable),
    (E.GenericError(_answer(507)), REFUSED, InvalidRequest),
    (E.GenericError("HTTP error\n\nDebug source:\nkind: Connect,"), NOT_SENT, Unavailable),
    (E.GenericError("HTTP error\n\nDebug source:\nkind: Timeout,"), LOST, Unavailable),
    (E.GenericError("Received redirect without LOCATION, ..."), REFUSED, InvalidRequest),
    (E.GenericError("Generic Config error: ..."), REFUSED, InvalidRequest),
    (FileNotFoundError(_answer(404, "NoSuchBucket")), REFUSED, InvalidRequest),
    (NotImplementedError("put_opts"), REFUSED, InvalidRequest),
    (ValueError("Could not parse path"), REFUSED, InvalidRequest),
    (OSError("?"), LOST, Unavailable),
]


@pytest.mark.parametrize(
    ("error", "verdict", "expected"), TABLE, ids=lambda value: repr(value)[:50]
)
def test_each_error(error: Exception, verdict: RequestOutcome, expected: type[TxlakeError]) -> None:
    assert request_outcome(error) is verdict
    found = translate_error(error, "write", "s3://bucket/t/x", frozenset())
    assert type(found) is expected
    message = str(found)
    assert message.startswith("can't write s3://bucket/t/x: ")
    assert "; " in message  # what to do next
    assert "Debug source" not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("error", "action", "said"),
    [
        (_answer(400, "<Code>ExpiredToken</Code>"), "read", "have expired: connect again"),
        (_answer(400), "read", "credentials may have expired"),
        (_answer(403, "<Code>RequestTimeTooSkewed</Code>"), "write", "set this machine's"),
        (_answer(403, "<Code>InvalidAccessKeyId</Code>"), "list", "correct the credentials"),
        (_answer(403, "<Code>AccessDenied</Code>"), "list", "s3:ListBucket"),
        (_answer(403, "<Code>AccessDenied</Code>"), "delete", "s3:DeleteObject"),
        ("key x: Access Denied (code: AccessDenied)", "delete", "s3:DeleteObject"),
        (_answer(503, "<Code>SlowDown</Code>"), "write", "limits the rate of requests: wait"),
        (_answer(503, "<Code>ServerBusy</Code>"), "write", "limits the rate of requests: wait"),
        (
            "HTTP error\n\nDebug source:\nkind: Timeout,",
            "read",
            "timed out, see the storage option",
        ),
        ("HTTP error\n\nDebug source:\nkind: Connect,", "read", "no connection, see the endpoint"),
        ("HTTP error\n\nDebug source:\nIncompleteMessage", "read", "closed without an answer"),
    ],
)
def test_a_message_says_what_to_do(error: str, action: str, said: str) -> None:
    found = translate_error(E.GenericError(error), action, "s3://bucket/t/x", frozenset())
    assert said in str(found)
    assert isinstance(found, Unavailable) == ("503" in error or "Debug source" in error)


def test_the_paths_of_a_request_do_not_hide_its_reason() -> None:
    """A request to delete many objects names all of them."""
    paths = ",".join(f"wh/a: b/{number}" for number in range(1000))
    denied = "The operation lacked the necessary privileges to complete for path"
    error = E.PermissionDeniedError(f"{denied} {paths}: {_answer(403)}")
    found = str(translate_error(error, "delete", "s3://bucket/wh/a", frozenset()))
    assert "status code: 403" in found
    assert len(found) < 500


def test_the_table_is_complete() -> None:
    # NotFoundError is deprecated: the builtin one is raised instead.
    names = {
        name
        for name, found in vars(E).items()
        if isinstance(found, type) and issubclass(found, E.BaseError) and name != "NotFoundError"
    }
    assert names == {
        type(error).__name__ for error, _, _ in TABLE if isinstance(error, E.BaseError)
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://a.blob/c?sv=2024&sig=abc%2Fdef&se=1", "https://a.blob/c?sv=2024&sig=***&se=1"),
        ("?X-Amz-Signature=0a1b&X-Amz-Date=1", "?X-Amz-Signature=***&X-Amz-Date=***"),
        ("X-Goog-Credential=me@x.iam", "X-Goog-Credential=***"),
        ("?AWSAccessKeyId=AKIDEXAMPLE&x=1", "?AWSAccessKeyId=***&x=1"),
        ("<AWSAccessKeyId>abc</AWSAccessKeyId>", "<AWSAccessKeyId>***</AWSAccessKeyId>"),
        ("<StringToSign>a\nb</StringToSign>", "<StringToSign>***</StringToSign>"),
        ("<StringToSign>cut of", "<StringToSign>***"),
        ("key AKIAABCDEFGHIJKLMNOP.", "key ***."),
        ("Authorization: Bearer ey.J0 rest", "Authorization: *** rest"),
        ("http://user:pass@host/x", "http://***@host/x"),
        ("abfss://container@account/x", "abfss://container@account/x"),
        ("the password is opensesame", "the password is ***"),
        ("nothing to hide", "nothing to hide"),
        ("/etc/passwd: a file", "/etc/passwd: a file"),
        ("'file:///etc/my.secret: a file", "'file:///etc/my.secret: a file"),
        ("passwd: abc", "passwd: ***"),
        ("/etc/x passwd: abc", "/etc/x passwd: ***"),
        ("/etc/passwd=abc", "/etc/passwd=***"),
        ("/etc/passwd:abc", "/etc/passwd:***"),
        ("https://host/password: abc", "https://host/password: ***"),
    ],
)
def test_redacted(text: str, shown: str) -> None:
    assert redact(text, frozenset({"opensesame"})) == shown


def test_which_options_are_secret() -> None:
    options = {
        "AWS_SECRET_ACCESS_KEY": "secret1",
        "aws_session_token": "secret2",
        "azure_storage_sas_key": "secret3",
        "password": "secret4",
        "region": "eu-west-1",
        "endpoint": "http://host",
        "skip_signature": "true",
    }
    assert secrets_of(options) == {"secret1", "secret2", "secret3", "secret4"}
