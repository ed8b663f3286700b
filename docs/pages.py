"""Which files of the repository MkDocs makes the site of.

Each page keeps its path, so that the links between pages, and from pages to source files, hold here and on GitHub alike.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parent.parent
_PAGES = ("*.md", "docs/*.md", "docs/adr/*.md")
# What mkdocs.yml names.
_LOOKS = ("docs/site.css", "tidemark/plugin/page/icon.svg")
_LINK = re.compile(r"\]\(([^)#:\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages and what they link to, beside the theme's own files; MkDocs calls this by its name."""
    pages = {page for pattern in _PAGES for page in REPOSITORY.glob(pattern)}
    linked = {(page.parent / name).resolve() for page in pages for name in _LINK.findall(page.read_text("utf-8"))}
    looks = {REPOSITORY / name for name in _LOOKS}
    own = sorted(path.relative_to(REPOSITORY) for path in pages | linked | looks if path.is_file())
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files(
        [*theme, *(File(str(path), str(REPOSITORY), config.site_dir, config.use_directory_urls) for path in own)]
    )
