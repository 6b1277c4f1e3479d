"""open_location: which options a location takes; integration-tests/reader has those by a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cairn.errors import ConfigError
from cairn.location import open_location


def test_a_folder_needs_no_options(tmp_path: Path) -> None:
    """Empty ones are those of a command that was given none."""
    options = {"endpoint_url": "", "region": "", "hadoop_conf": {}, "jars": ()}

    with open_location(str(tmp_path), options) as store:
        assert store.url == str(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hadoop_conf": {"a": "b"}}, "no effect on this storage"),
        ({"jars": ["x.jar"]}, "no effect on this storage"),
        ({"hadoop_conf": "a=b"}, "hadoop_conf is no mapping"),
        ({"jars": "x.jar"}, "jars is no list"),
    ],
)
def test_an_option_without_effect_is_an_error(options: dict[str, Any], words: str) -> None:
    """A user who gives one believes that it counts."""
    with pytest.raises(ConfigError, match=words):
        open_location("s3://bucket/ck", options)


def test_an_unknown_option_of_s3_is_named() -> None:
    """The same words as in a job."""
    with pytest.raises(ConfigError, match=r"'regoin' is unknown.*'region'"):
        open_location("s3://bucket/ck", {"regoin": "eu-west-1"})


def test_another_file_system_needs_a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says so, and how to get one."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    jar = tmp_path / "cairn-shim-4.3.jar"
    jar.touch()
    monkeypatch.setattr("cairn.jar.BUILT", tmp_path / "absent")
    monkeypatch.setattr("cairn.jar.PACKAGED", tmp_path)

    with pytest.raises(ConfigError, match="JAVA_HOME"):
        open_location("hdfs://host/ck")
