"""Runs commands over the sample checkpoint of the repository, or a small one of the reader's."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from cairn.cli.main import main

sys.path.append(str(Path(__file__).parents[1] / "reader" / "kit"))

Run: TypeAlias = Callable[..., Result]


@pytest.fixture(scope="session")
def sample() -> str:
    """Return the sample checkpoint."""
    return str(Path(__file__).resolve().parents[4] / "examples" / "sample-checkpoint")


@pytest.fixture
def damaged(sample: str, tmp_path: Path) -> Path:
    """Return a copy of the sample that lacks all changelogs of operator 0."""
    copy = tmp_path / "damaged"
    shutil.copytree(sample, copy)
    for changelog in copy.glob("state/0/*/changelog/*"):
        changelog.unlink()
    return copy


@pytest.fixture
def run() -> Run:
    """Return what runs a command and returns its exit code and its outputs."""

    def run_command(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments)

    return run_command
