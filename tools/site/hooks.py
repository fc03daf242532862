"""Pages of the site that aren't in docs/: those of the root, the notebooks, and the reference.

Owns where their links lead: on GitHub they are paths of the repository, here they are pages.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

import txlake

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "ARCHITECTURE.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
"""The root's pages, and what they are called on the site."""

REFERENCE = {
    "Lake and sessions": ("connect", "Lake", "LakeSession", "Transaction", "Branch"),
    "Tables": (
        *("DeltaTable", "DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTableBuilder"),
        *("TableBranch", "IdentityGenerator"),
    ),
    "Spark's own doors": (
        *("enable", "disable", "configure", "install_as_delta", "uninstall_as_delta"),
        "TxlakeDataSource",
    ),
    "The log": ("Log", "sources_tag"),
    "Settings": ("Settings", "RetrySettings"),
}
"""What the page of the reference shows, in order."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_of_the_site(text)))
    files.append(File.generated(config, "reference.md", content=reference()))
    for notebook in sorted((ROOT / "examples/notebooks").glob("*.ipynb")):
        text, _ = MarkdownExporter().from_filename(str(notebook))
        files.append(File.generated(config, f"notebook-{notebook.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Make the links of pages in docs/ to the root lead to pages, or nowhere."""
    return _LINK.sub(lambda found: _linked(found, prefix="../"), markdown)


def reference() -> str:
    """The page of the reference, for mkdocstrings."""
    parts = ["# Python\n"]
    for title, names in REFERENCE.items():
        parts.append(f"## {title}\n")
        for name in names:
            found = getattr(txlake, name)
            parts.append(f"::: {found.__module__}.{found.__qualname__}\n")
    return "\n".join(parts)


def _of_the_site(text: str) -> str:
    return _LINK.sub(lambda found: _linked(found, prefix=""), text)


def _linked(found: re.Match[str], *, prefix: str) -> str:
    """The link as the site has it; its words alone where the site hasn't what it leads to."""
    sign, words, target = found.groups()
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in path or (prefix and not path.startswith(prefix)):
        return found[0]
    path = path.removeprefix(prefix)
    if path.startswith("docs/"):
        return f"{sign}[{words}]({path.removeprefix('docs/')}{hash_sign}{anchor})"
    if path in PAGES:
        return f"[{words}]({PAGES[path]}{hash_sign}{anchor})"
    return words
