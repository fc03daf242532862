"""Whether a folder is where its path says, or a symbolic link leads out of the root."""

from __future__ import annotations

from pathlib import Path

import pytest

from txlake.storage import canonical_url, symlink_target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the folder of a table, beside a folder of somebody else's."""
    (tmp_path / "root" / "t").mkdir(parents=True)
    (tmp_path / "elsewhere" / "t").mkdir(parents=True)
    return tmp_path / "root"


def led(root: Path, folder: Path) -> str | None:
    return symlink_target(canonical_url(root), canonical_url(folder))


def test_a_folder_without_links_is_at_its_place(root: Path) -> None:
    assert led(root, root / "t") is None
    assert led(root, root) is None
    assert led(root, root / "d.db" / "not there yet") is None


def test_a_link_leads_out(root: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    (root / "out").symlink_to(elsewhere)
    (root / "in").symlink_to(root / "t")
    (root / "dangling").symlink_to(root.parent / "nowhere")
    assert led(root, root / "out") == canonical_url(elsewhere)
    assert led(root, root / "out" / "t") == canonical_url(elsewhere / "t")
    assert led(root, root / "in") == canonical_url(root / "t")  # another table's
    assert led(root, root / "dangling") == canonical_url(root.parent / "nowhere")


def test_a_link_back_to_the_root_is_a_link(root: Path) -> None:
    (root / "d.db").symlink_to(root)
    assert led(root, root / "d.db" / "t") == canonical_url(root / "t")


def test_how_the_root_is_reached_does_not_matter(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert led(link, link / "t") is None
    assert led(root, link / "t") is None
    assert led(link, root / "t") is None


def test_what_is_not_below_the_root_is_elsewhere(root: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    assert led(root, elsewhere) == canonical_url(elsewhere)
    assert led(root, root.parent / "root2") == canonical_url(root.parent / "root2")


def test_other_stores_have_no_links(root: Path) -> None:
    assert symlink_target("s3://bucket/root", "s3://bucket/root/t") is None
    assert symlink_target("memory://root", "memory://other/t") is None
    assert symlink_target(canonical_url(root), "s3://bucket/t") is None


def test_the_root_of_the_file_system(root: Path) -> None:
    assert symlink_target("file:///", canonical_url(root / "t")) is None
