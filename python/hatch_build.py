"""What hatchling's settings cannot say about the wheel and the sdist.

Layer: build; hatchling loads it.  LICENSE and README.md beside it are links to the files in the
root of the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_README = "README.md"
# Markdown's [text](target) and the attributes of HTML; the target is neither a URL nor an anchor.
_LINK = re.compile(
    r"(?P<before>\]\(|\b(?:href|src|srcset)=\")(?![a-z]+:|[#/])(?P<target>[^\s)\"]+)"
)
_IMAGES = (".gif", ".jpg", ".png", ".svg", ".webp")


def with_absolute_links(text: str, source: str, revision: str) -> str:
    """Return Markdown whose relative links and images are URLs of the repository.

    Args:
        text: Markdown of a file in the root of the repository.
        source: the repository's URL; its pages have the paths of GitHub's.
        revision: a tag, so that the links of a release show the files of that release.
    """

    def absolute(link: re.Match[str]) -> str:
        page = "raw" if link["target"].endswith(_IMAGES) else "blob"
        return f"{link['before']}{source}/{page}/{revision}/{link['target']}"

    return _LINK.sub(absolute, text)


class PackageIndexPage(MetadataHookInterface):
    """Gives the page of the package index its text and its links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme`` and ``urls``; the version is there already."""
        source, revision = self.config["source"], f"v{metadata['version']}"
        text = Path(self.root, _README).read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(text, source, revision),
        }
        metadata["urls"] = {
            "Source": source,
            "Documentation": f"{source}/tree/{revision}/docs",
            "Changelog": f"{source}/blob/{revision}/CHANGELOG.md",
            "Issues": f"{source}/issues",
        }


class FilesOfTheRoot(BuildHookInterface[Any]):
    """Puts files into the sdist where the folder has links, which would lead out of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Replace the links that hatchling includes by itself, and add the README."""
        included = {**build_data["force_include"], str(Path(self.root, _README)): _README}
        build_data["force_include"] = {
            str(Path(path).resolve()): name for path, name in included.items()
        }
