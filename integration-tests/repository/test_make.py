"""The verbs of `make` leave nothing behind."""

from __future__ import annotations

import os
import re
import subprocess

from harness.spark import REPOSITORY


def test_no_verb_starts_a_daemon_of_gradle() -> None:
    """It would keep half a gigabyte for hours after the verb has ended."""
    verbs = ["test-all", "bench-all", "gcs"]  # with all that they need, whether it is there or not
    shown = subprocess.run(
        ["make", "--dry-run", "--always-make", *verbs],
        cwd=REPOSITORY,
        # `make test` would hand down its own options.
        env={name: value for name, value in os.environ.items() if name != "MAKEFLAGS"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    scripts = [path.read_text("utf-8") for path in (REPOSITORY / "scripts").glob("*.sh")]

    commands = re.findall(r"^gradle -.*", "\n".join([shown, *scripts]), re.MULTILINE)

    assert len(commands) > len(verbs), shown
    assert [command for command in commands if " --no-daemon " not in command] == []
