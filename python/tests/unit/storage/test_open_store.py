"""A URL finds its storage; one without is refused with the list of those that have."""

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
def test_every_way_of_writing_a_path_is_the_same_store(tmp_path: Path, form: str) -> None:
    """Hadoop writes ``file:/a``, people ``/a``, others ``file:///a``; none of them escapes."""
    root = tmp_path / "100% sure? #1"

    with open_store(form.format(root), {}) as store:
        store.put("x", b"1")

    assert isinstance(store, LocalStore)
    assert (root / "x").read_bytes() == b"1"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_all_spellings_of_s3_are_s3(scheme: str) -> None:
    """A job's ``s3a://`` must find what ``s3://`` wrote."""
    with open_store(f"{scheme}://bucket/a/b", {"region": "eu-central-1"}) as store:
        assert isinstance(store, S3Store)
        assert store.object_url("x") == f"{scheme}://bucket/a/b/x"


def test_memory_is_shared_by_name() -> None:
    """Two halves of a test see one bucket."""
    with open_store("memory://shared/a", {}) as one, open_store("memory://shared", {}) as other:
        one.put("x", b"1")

        assert isinstance(one, MemoryStore)
        assert other.get("a/x").data == b"1"


@pytest.mark.parametrize("url", ["hdfs://nn/a", "gs://b/a", "abfss://c@a/x", "wasb:x"])
def test_other_schemes_are_refused_with_the_list(url: str) -> None:
    """Falling back to a local directory named ``hdfs:`` would lose the state with the machine."""
    with pytest.raises(SchemeError, match=r"s3a.*file") as raised:
        open_store(url, {})

    assert raised.value.object_name == url


@pytest.mark.parametrize("url", ["s3://", "s3:///a", "s3a://key:secret@bucket/a"])
def test_a_malformed_s3_location_is_refused(url: str) -> None:
    """Credentials in a URL end up in every log; the error must not repeat them."""
    with pytest.raises(ConfigError) as raised:
        open_store(url, {"region": "eu-central-1"})

    assert "secret" not in str(raised.value)


def test_an_unknown_setting_names_the_nearest() -> None:
    """A typing error in a setting must not be silence."""
    with pytest.raises(ConfigError, match="'endpoint_url'"):
        open_store("s3://b/a", {"endpoint-url": "http://x"})


def test_local_files_need_no_s3_client() -> None:
    """boto3 costs each worker memory and start time; only who uses S3 pays."""
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
