"""Redaction of credentials from messages, logs and stored texts.

Owns how a credential is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CONFIDENTIAL_OPTION = re.compile(r"key|secret|token|password|credential|sas", re.I)
_HIDDEN = "***"
# A local file that is named like a setting, before what a message says of it: `/etc/passwd: ...`.
_OF_A_PATH = re.compile(r"(?:^|[\s\"'(=])(?:file:/{0,2})?/[^\s:@\"']*$")
_PATH_CHARS_MAX = 4096
_CONFIDENTIAL = (
    # Query parts of signed URLs (S3, GCS, Azure).
    re.compile(
        r"(?i)((?:sig|signature|delegation|x-(?:amz|goog)-[a-z-]+|awsaccesskeyid)=)[^&\s\"'<>]+"
    ),
    # What S3 repeats in its error documents.
    re.compile(
        r"(?is)(<(AWSAccessKeyId|StringToSign\w*|SignatureProvided|CanonicalRequest\w*|Token"
        r"[\w-]*)>).*?(?=</\2>|$)"
    ),
    re.compile(r"(?i)((?:authorization|bearer|sharedkey)[:= ]+)[^\s\"',<>]+(?: [^\s\"',<>]+)?"),
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),
    re.compile(r"(//)[^/@\s]*:[^/@\s]*(?=@)"),
    # Settings by name, in statements, URLs and configurations.
    re.compile(
        r"(?i)((?:password|passwd|secret|(?:secret|access|account)[._-]?key|(?:session|sas)[._-]?token)"
        r"[\"'`]?\s*(?:=>?|:)\s*[\"']?)[^\s\"',;)&]+"
    ),
)


def redact(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """Return `text` without `secrets`, and without what looks like a credential."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    for pattern in _CONFIDENTIAL:
        text = pattern.sub(_hidden, text)
    return text


def _hidden(found: re.Match[str]) -> str:
    """Return a match with `***` for its secret; a match after a file's path as it is."""
    if found[1].endswith(": "):
        before = found.string[max(0, found.start() - _PATH_CHARS_MAX) : found.start()]
        if _OF_A_PATH.search(before):
            return found[0]
    return f"{found[1]}{_HIDDEN}"


def secrets_of(storage_options: Mapping[str, str]) -> frozenset[str]:
    """Return the values that no message may show: of options whose name suggests a credential, if
    they have more than 3 characters.
    """
    return frozenset(
        value
        for name, value in storage_options.items()
        if _CONFIDENTIAL_OPTION.search(name) and len(value) > 3
    )
