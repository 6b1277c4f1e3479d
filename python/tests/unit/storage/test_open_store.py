"""A URL selects its storage; an unknown scheme is refused with the list of the known ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cairn.errors import ConfigError, SchemeError
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryStore
from cairn.storage.open import open_store
from cairn.storage.s3.store import S3Store


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "{}/"])
def test_every_spelling_of_a_path_is_the_same_store(tmp_path: Path, form: str) -> None:
    """Hadoop writes ``file:/a``, people ``/a`` or ``file:///a``; nothing is percent-decoded."""
    root = tmp_path / "100% sure? #1"

    with open_store(form.format(root), {}) as store:
        store.put("x", b"1")

    assert isinstance(store, LocalStore)
    assert (root / "x").read_bytes() == b"1"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_all_spellings_of_s3_are_s3(scheme: str) -> None:
    """A job with ``s3a://`` must find the objects that ``s3://`` wrote."""
    with open_store(f"{scheme}://bucket/a/b", {"region": "eu-central-1"}) as store:
        assert isinstance(store, S3Store)
        assert store.object_url("x") == f"{scheme}://bucket/a/b/x"


def test_memory_is_shared_by_name() -> None:
    """Two parts of a test use one bucket."""
    with open_store("memory://shared/a", {}) as one, open_store("memory://shared", {}) as other:
        one.put("x", b"1")

        assert isinstance(one, MemoryStore)
        assert other.get("a/x").data == b"1"


@pytest.mark.parametrize("url", ["hdfs://nn/a", "gs://b/a", "abfss://c@a/x", "wasb:x"])
def test_other_schemes_are_refused_with_the_list(url: str) -> None:
    """A local directory named ``hdfs:`` would lose the state with the machine."""
    with pytest.raises(SchemeError, match=r"s3a.*file") as raised:
        open_store(url, {})

    assert raised.value.object_name == url


@pytest.mark.parametrize("url", ["s3://", "s3:///a", "s3a://key:secret@bucket/a", "s3a://[secret"])
def test_a_malformed_s3_location_is_refused(url: str) -> None:
    """A URL appears in logs: it may not contain credentials, and the error must not repeat them."""
    with pytest.raises(ConfigError) as raised:
        open_store(url, {"region": "eu-central-1"})

    assert "secret" not in str(raised.value)


def test_an_unknown_setting_names_the_nearest() -> None:
    """A misspelt setting must not be ignored."""
    with pytest.raises(ConfigError, match="'endpoint_url'"):
        open_store("s3://b/a", {"endpoint-url": "http://x"})


def test_local_files_need_no_s3_client() -> None:
    """boto3 costs memory and start time, which workers without S3 should not pay."""
    code = "import sys, cairn.storage.open; print('boto3' in sys.modules)"
    source = Path(open_store.__code__.co_filename).parents[2]

    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.strip() == "False"
