"""Spark's offline repartition refuses Cairn's state: before it writes, or it can be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

from cairn.cli.main import main
from harness.checkpoint_files import causes
from harness.clear_errors import assert_clear
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.spark import FILE_MANAGER_CLASS, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

FILES_BEFORE = 3
FILES_AFTER = 2
PARTITIONS = 5
SPARKS_FILES = {
    FILE_MANAGER_CLASS: "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager"
}
OFFSET_LOG_FORMAT = "spark.sql.streaming.offsetLog.formatVersion"


def repartition(run: Run, *, exactly_once: bool = True) -> str:
    """Try to repartition the state; return the texts of the error and its causes."""
    manager = run.session()._streamingCheckpointManager  # noqa: SLF001 - Spark names it so
    try:
        manager.repartition(run.checkpoint, PARTITIONS, exactly_once)
    except Py4JJavaError as error:
        return "\n".join(causes(error))
    except Exception as error:  # noqa: BLE001 - PySpark converts Spark's own errors
        return str(error)
    raise AssertionError("Spark has repartitioned Cairn's state")


def undo(checkpoint: str, *arguments: str) -> str:
    """Call the command; return its output."""
    result = CliRunner().invoke(main, ["undo-repartition", checkpoint, *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def stopped_run(
    tmp_path: Path,
    checkpoint: str,
    checkpoint_format: int,
    conf: Mapping[str, str],
    operator: str = "windows_update",
) -> Run:
    """Run a query over the first files and return it."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES_BEFORE)
    run = Run(BY_NAME[operator], events, checkpoint, SUBJECT, checkpoint_format, conf)
    run.advance()
    return run


def rows_without_repartition(run: Run, tmp_path: Path) -> dict[int, list[str]]:
    """Run the query in the same two steps, over the same rows, without a repartition."""
    events = Events(tmp_path / "plain-input")
    plain = Run(run.operator, events, str(tmp_path / "plain"), SUBJECT, run.checkpoint_format)
    for first, count in ((0, FILES_BEFORE), (FILES_BEFORE, FILES_AFTER)):
        events.add_files(first, count)
        plain.advance()
    return plain.record.rows


@pytest.mark.parametrize("exactly_once", [True, False])
def test_with_cairns_files_nothing_is_written(tmp_path: Path, *, exactly_once: bool) -> None:
    """After Spark's own refusal the query does not start: so the attempt must fail before."""
    checkpoint = tmp_path / "query"
    run = stopped_run(tmp_path, str(checkpoint), 2, {})
    if not exactly_once:
        # A batch that has failed: the repartition would commit it without its state.
        (checkpoint / "commits" / str(FILES_BEFORE - 1)).unlink()
    before = sorted(path for log in ("offsets", "commits") for path in (checkpoint / log).iterdir())

    message = repartition(run, exactly_once=exactly_once)

    assert_clear(message, "CAIRN_REPARTITION", "spark.sql.shuffle.partitions", str(checkpoint))
    after = sorted(path for log in ("offsets", "commits") for path in (checkpoint / log).iterdir())
    assert after == before
    run.events.add_files(FILES_BEFORE, FILES_AFTER)
    run.advance()
    assert run.record.rows == rows_without_repartition(run, tmp_path)


def check_taken_back(run: Run, tmp_path: Path, *arguments: str) -> None:
    """Provoke the refusal, take it back with the command, and compare the rows afterwards."""
    message = repartition(run)
    assert "UNSUPPORTED_PROVIDER" in message
    run.events.add_files(FILES_BEFORE, FILES_AFTER)
    with pytest.raises(StreamingQueryException, match="UNFINISHED_REPARTITION"):
        run.advance()

    assert f"To delete: offsets/{run.record.last_batch + 1}" in undo(run.checkpoint, *arguments)
    with pytest.raises(StreamingQueryException, match="UNFINISHED_REPARTITION"):
        run.advance()
    undo(run.checkpoint, "--apply", *arguments)
    run.advance()

    assert run.record.rows == rows_without_repartition(run, tmp_path)
    assert "nothing to take back" in undo(run.checkpoint, *arguments)


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_a_refused_repartition_is_taken_back(tmp_path: Path, checkpoint_format: int) -> None:
    """With Spark's own file manager the harm is done; the query must start again with all rows."""
    run = stopped_run(tmp_path, str(tmp_path / "query"), checkpoint_format, SPARKS_FILES)

    check_taken_back(run, tmp_path)


def test_a_refused_repartition_is_taken_back_in_the_newer_offset_log(tmp_path: Path) -> None:
    """Spark has two formats of the offset log."""
    conf = {**SPARKS_FILES, OFFSET_LOG_FORMAT: "2"}
    run = stopped_run(tmp_path, str(tmp_path / "query"), 2, conf)
    entry = tmp_path / "query" / "offsets" / "0"
    assert entry.read_text().startswith("v2")

    check_taken_back(run, tmp_path)


def test_a_refused_repartition_is_taken_back_on_s3(
    s3_bucket: S3Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints are on S3, where users have no shell to delete a file."""
    settings = s3_bucket.settings
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", settings["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", settings["secret_key"])
    conf = {**SPARKS_FILES, **s3a_conf(settings)}
    run = stopped_run(tmp_path, f"{s3_bucket.url}/query", 2, conf)
    endpoint = ["--s3-endpoint", settings["endpoint_url"], "--s3-region", settings["region"]]

    check_taken_back(run, tmp_path, *endpoint)


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_commits_of_skipped_batches_are_taken_back(tmp_path: Path, checkpoint_format: int) -> None:
    """A repartition that skips a failed batch commits it without state; that batch must run."""
    checkpoint = tmp_path / "query"
    run = stopped_run(tmp_path, str(checkpoint), checkpoint_format, SPARKS_FILES)
    # As if the driver had died in its last batch, after the state and before the commit.
    last = run.record.last_batch
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run.record.rows.pop(last)

    assert "UNSUPPORTED_PROVIDER" in repartition(run, exactly_once=False)
    assert (checkpoint / "commits" / str(last)).exists()
    undo(run.checkpoint, "--apply")
    run.events.add_files(FILES_BEFORE, FILES_AFTER)
    run.advance()

    assert run.record.rows == rows_without_repartition(run, tmp_path)
