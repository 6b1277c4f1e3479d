"""A store whose types cannot be read: the others are listed and read; reading it names the type."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cairn
from cairn.errors import CorruptError, MissingError, UnsupportedStateError

SAMPLE = Path(__file__).resolve().parents[4] / "examples" / "sample-checkpoint"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """Return the schema file of operator 0 of a copy of the sample checkpoint."""
    shutil.copytree(SAMPLE, tmp_path / "ck")
    (path,) = (tmp_path / "ck/state/0/_stateSchema/default").glob("0_*")
    return path


def checkpoint_of(schema: Path) -> str:
    """Return the location of the checkpoint that has a schema file."""
    return str(schema.parents[4])


def with_unknown_type(schema: Path) -> None:
    """Give a column of the variable last_orders a type of a later Spark."""
    data = schema.read_bytes()
    assert data.count(b"decimal(8,2)") == 1
    schema.write_bytes(data.replace(b"decimal(8,2)", b"geography(1)"))


def test_a_type_that_is_not_known_concerns_its_variable_alone(schema: Path) -> None:
    """One column of a new type must not hide a whole query from its operator."""
    with_unknown_type(schema)

    with cairn.open_checkpoint(checkpoint_of(schema)) as ck:
        assert [one.operator for one in ck.operators] == [0, 1]
        problems = {one.name: one.problem for one in ck.stores if not one.is_internal}
        assert ck.state(0, "total").to_table().num_rows == 4
        with pytest.raises(UnsupportedStateError, match=r"geography\(1\)") as raised:
            ck.state(0, "last_orders")

    assert problems == {
        "by_product": None,
        "last_orders": str(raised.value),
        "total": None,
        "left": None,
        "right": None,
    }
    assert raised.value.store == "0/default"


def cut(path: Path) -> None:
    """Cut a file off."""
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(("harm", "error"), [(cut, CorruptError), (Path.unlink, MissingError)])
def test_a_schema_file_that_is_damaged_concerns_its_store_alone(
    schema: Path, harm: object, error: type[Exception]
) -> None:
    """The names of its variables are still there, and reading one says what is damaged."""
    before = schema.read_bytes()
    assert callable(harm)
    harm(schema)

    with cairn.open_checkpoint(checkpoint_of(schema)) as ck:
        assert ck.operators[0].variables == ("total", "by_product", "last_orders")
        stores = [(one.operator, one.name, one.problem is None) for one in ck.stores]
        assert ck.state(1, "left").to_table().num_rows > 0
        for store in (None, "total"):
            with pytest.raises(error, match=schema.name):
                ck.state(0, store)
        schema.write_bytes(before)
        assert ck.state(0, "total").to_table().num_rows == 4

    assert (0, "default", False) in stores
    assert (1, "left", True) in stores


@pytest.mark.parametrize("harm", [with_unknown_type, cut])
def test_verify_and_report_go_on_with_the_other_stores(schema: Path, harm: object) -> None:
    """The first fault must not hide the second one."""
    assert callable(harm)
    harm(schema)
    for changelog in Path(checkpoint_of(schema)).glob("state/1/0/changelog/*"):
        changelog.unlink()

    with cairn.open_checkpoint(checkpoint_of(schema)) as ck:
        findings = [one for one in ck.verify() if one.rule != "schema-elsewhere"]
        report = ck.report()

    assert {(one.rule, str(one.place)) for one in findings} >= {
        ("operator-metadata", "0/default"),
        ("state-unreadable", "1/0/default"),
    }
    assert [one for one in report.findings if one.rule != "schema-elsewhere"] == findings
    assert {one.name: one.keys for one in report.families}["left"]
