"""A local disk that is full while state is repartitioned, imported or exported.

Each ends with one clear error that names the disk; with free space the same command does its work.
The tests of `migrate` with a full disk are in `test_migrate_faults`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cairn
from cairn.errors import DiskFullError
from cairn.offline.move.running import MoveProgress
from harness.differential import Run, copy_checkpoint
from harness.moves import age_logs, ended_query
from harness.small_disk import SmallDisk, mounted_disk
from harness.spark import CAIRN

pytestmark = pytest.mark.usefixtures("driver")

PARTITIONS = 4
AFTER = 6
DISK_MIB = 16


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a query of Cairn's of four partitions, which has ended."""
    return ended_query(tmp_path_factory.mktemp("ended"), CAIRN, PARTITIONS)


@pytest.fixture
def query(ended: Run, tmp_path: Path) -> Path:
    """Return a copy of its checkpoint."""
    copy = Path(copy_checkpoint(ended, tmp_path / "query").checkpoint)
    age_logs(copy)
    return copy


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mount a file system of a few MiB."""
    with mounted_disk(tmp_path / "disk", DISK_MIB) as mounted:
        yield mounted


def fills_at(disk: SmallDisk, stores: int) -> Callable[[MoveProgress], None]:
    """Return what fills the disk when so many stores are done."""

    def fill(progress: MoveProgress) -> None:
        if progress.stores == stores:
            disk.fill()

    return fill


def rows_of(checkpoint: Path) -> list[str]:
    """Return the rows of a state, without their partitions."""
    with cairn.open_checkpoint(str(checkpoint)) as opened:
        return sorted(map(repr, opened.state().to_table().drop_columns("partition").to_pylist()))


def files(folder: Path) -> set[str]:
    """Return the files of a folder but the ballast of a disk."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {"ballast", ".cairn.lock"}
    }


def require_clear(failure: DiskFullError, disk: SmallDisk, option: str) -> None:
    """Require that an error says which disk is full, and what to do."""
    assert str(disk.path) in str(failure.object_name)
    assert "free space" in str(failure.next_step)
    assert option in str(failure.next_step)


def require_unchanged(query: Path, before: set[str]) -> None:
    """Require that the logs have no other entry, and that all objects are there."""
    after = files(query)
    assert before <= after
    assert not [key for key in after - before if not key.startswith(("state/", "cairn-log/"))]


@pytest.mark.parametrize(
    "stores", [0, 2, PARTITIONS, PARTITIONS + 2], ids=["begin", "read", "all-read", "written"]
)
def test_a_repartition_names_the_full_disk_and_goes_on(
    query: Path, disk: SmallDisk, stores: int
) -> None:
    """The rows of all stores are spilled there, and then each new store is written there."""
    before, rows = files(query), rows_of(query)
    seen: list[int] = []

    with cairn.repartition(str(query), partitions=AFTER) as plan:
        with pytest.raises(DiskFullError) as failure:
            plan.apply(processes=1, local_dir=disk.path, progress=fills_at(disk, stores))
        require_unchanged(query, before)
        assert rows_of(query) == rows
        disk.free()
        plan.apply(processes=1, local_dir=disk.path, progress=lambda one: seen.append(one.stores))

    require_clear(failure.value, disk, "--local-dir")
    assert seen[-1] == PARTITIONS + AFTER
    assert rows_of(query) == rows
    with cairn.open_checkpoint(str(query)) as checkpoint:
        assert checkpoint.operators[0].partitions == AFTER
        assert list(checkpoint.verify()) == []
    assert not files(disk.path)


def exported(query: Path, folder: Path) -> Path:
    """Return a folder with the rows of a query."""
    cairn.export(str(query), to=str(folder), operator=0)
    return folder


def import_all(query: Path, rows: Path, disk: SmallDisk, **run: Any) -> None:  # noqa: ANN401
    """Import rows, by way of the disk."""
    with cairn.import_state(
        str(query), files=str(rows), operator=0, mode="replace", local_dir=disk.path
    ) as plan:
        plan.apply(**{"processes": 1, **run})


@pytest.mark.parametrize("stores", [None, 0, 2], ids=["plan", "begin", "written"])
def test_an_import_names_the_full_disk_and_leaves_nothing_there(
    query: Path, disk: SmallDisk, tmp_path: Path, stores: int | None
) -> None:
    """The plan puts all rows there, and then each store is written there."""
    rows = exported(query, tmp_path / "rows")
    before, expected = files(query), rows_of(query)
    if stores is None:
        disk.fill()

    with pytest.raises(DiskFullError) as failure:
        import_all(query, rows, disk, progress=None if stores is None else fills_at(disk, stores))
    require_unchanged(query, before)
    assert rows_of(query) == expected
    disk.free()
    assert not files(disk.path), "the rows are left on the disk"
    import_all(query, rows, disk)

    require_clear(failure.value, disk, "--local-dir")
    assert rows_of(query) == expected
    with cairn.open_checkpoint(str(query)) as checkpoint:
        assert list(checkpoint.verify()) == []
    assert not files(disk.path)


@pytest.mark.parametrize("target", ["folder", "folder-of-disk", "file-of-disk"])
def test_an_export_names_the_full_disk_and_leaves_no_file(
    query: Path, disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Files of a folder are written as temporary files first; the file is written at its place."""
    if target == "folder":
        monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
    to = {
        "folder": tmp_path / "rows",
        "folder-of-disk": disk.path / "rows",
        "file-of-disk": disk.path / "rows.parquet",
    }[target]
    disk.fill()

    with pytest.raises(DiskFullError) as failure:
        cairn.export(str(query), to=str(to))
    disk.free()
    assert not [key for key in files(disk.path) if not key.endswith(".cairn.lock")]
    written = cairn.export(str(query), to=str(to))

    require_clear(failure.value, disk, "TMPDIR" if target == "folder" else "")
    assert sum(one.rows or 0 for one in written) == len(rows_of(query))
    for one in written:
        assert Path(one.object_name).stat().st_size == one.size_bytes
