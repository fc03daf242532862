"""A test that needs a program which `make test` doesn't set up is marked, or fails."""

from __future__ import annotations

import re
from typing import cast

import pytest

from tests import peers
from tests.pages import page
from tests.peers import PEERS, need, peers_of, running
from tests.test_parts import Node


def marked(peer: str | None) -> pytest.Item:
    return cast(pytest.Item, Node("tests/test_a.py::test_a", peer=peer))


def test_a_marked_test_is_skipped_where_the_program_is_not() -> None:
    with running(marked("judge")):
        need("judge", found=True)
        with pytest.raises(pytest.skip.Exception, match=re.escape(PEERS["judge"])):
            need("judge", found=False)


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize("peer", [None, "spin"])
def test_a_test_without_the_mark_fails_with_and_without_the_program(
    peer: str | None, found: bool
) -> None:
    with running(marked(peer)), pytest.raises(pytest.fail.Exception, match=r'peer\("judge"\)'):
        need("judge", found=found)


def test_this_test_is_the_running_one() -> None:
    with pytest.raises(pytest.fail.Exception, match="this test needs judge"):
        need("judge", found=True)


def test_outside_of_a_test_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_running", [])
    need("chromium", found=True)
    with pytest.raises(SystemExit, match="apt-get install chromium"):
        need("chromium", found=False)


def test_a_mark_of_an_unknown_program_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody"):
        peers_of(marked("nobody"))


def test_make_brings_the_programs_that_scripts_bring() -> None:
    """To the rest of the tests, and none of them to the core."""
    makefile = page("Makefile")
    scripts = {found for how in PEERS.values() for found in re.findall(r"tools/\w+\.sh", how)}
    scripts.remove("tools/unity_server.sh")  # of a checkout, by hand
    scripts.remove("tools/python_peer.sh")
    [brought] = re.findall(r"^PEERS := (.*)", makefile, re.MULTILINE)
    assert {f"tools/{name.removeprefix('peer-')}.sh" for name in brought.split()} == scripts
    by_name = {name for how in PEERS.values() for name in re.findall(r"python_peer\.sh (\S+)", how)}
    [brought] = re.findall(r"^PYTHON_PEERS := (.*)", makefile, re.MULTILINE)
    assert {name.removeprefix("python-") for name in brought.split()} == by_name
    [core] = re.findall(r"^test: (.*?) ##", makefile, re.MULTILINE)
    [rest] = re.findall(r"^test-rest: (.*?) ##", makefile, re.MULTILINE)
    assert core == "core-peers"
    assert rest == "core-peers peers"
