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
