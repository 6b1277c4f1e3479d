"""Every verb over the sample checkpoint: its rows, its form, its exit code.

The rows are those that `examples/sample/make.py` lets the query compute from its inputs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.parquet as pq
import pytest
from click.testing import Result

from cairn.cli.output import Fields

Run: TypeAlias = Callable[..., Result]

_PREFIX = "spark.sql.streaming.stateStore.cairn."
TOTAL = ("--operator", "0", "--store", "total")
ANN = '{"customer": "ann"}'


# -- ls ------------------------------------------------------------------------------------------


def test_ls_has_a_row_per_kind_of_rows(run: Run, sample: str) -> None:
    """The names are those that the other commands take."""
    rows = json.loads(run("ls", sample, "-o", "json").stdout)

    assert [(row["operator"], row["name"]) for row in rows] == [
        (0, "by_product"),
        (0, "last_orders"),
        (0, "total"),
        (1, "left"),
        (1, "right"),
    ]
    assert rows[1] == {
        "operator": 0,
        "operator_name": "transformWithStateInPySparkExec",
        "name": "last_orders",
        "store": "default",
        "family": "last_orders",
        "is_list": True,
        "provider": "cairn",
        "format": 2,
        "partitions": 2,
        "batch": 8,
        "first_batch": 0,
        "last_batch": 8,
        "columns": ["customer", "id", "amount"],
        "problem": None,
    }


def test_ls_counts_keys_and_shows_what_operators_have_for_themselves(run: Run, sample: str) -> None:
    """Of a list, the key counts once."""
    text = run("ls", sample, "--batch", "7", "--all", "--count", "-o", "json").stdout
    keys = {(row["operator"], row["name"]): row["keys"] for row in json.loads(text)}

    assert keys[0, "last_orders"] == keys[0, "total"] == keys[0, "$rowCounter_last_orders"] == 4
    assert keys[1, "left"] == keys[1, "left-keyToNumValues"] == 32


def test_a_store_of_unknown_types_is_listed_with_its_problem(
    run: Run, sample: str, tmp_path: Path
) -> None:
    """A type of a newer Spark in one store must not hide all others."""
    copy = tmp_path / "copy"
    shutil.copytree(sample, copy)
    (schema,) = copy.glob("state/0/_stateSchema/default/0_*")
    schema.write_bytes(schema.read_bytes().replace(b"decimal(8,2)", b"geography(1)"))

    rows = json.loads(run("ls", str(copy), "--count", "-o", "json").stdout)
    tables = run("query", str(copy), "-o", "json")
    known = run("query", str(copy), "select count(*) as n from op0_total", "-o", "json")
    unknown = run("query", str(copy), "select * from op0_last_orders")

    problems = {row["name"]: (row["keys"], row["problem"]) for row in rows}
    assert problems["total"] == (4, None)
    assert problems["last_orders"][0] is None
    assert "geography(1)" in problems["last_orders"][1]
    assert "op0_last_orders" not in {row["table"] for row in json.loads(tables.stdout)}
    assert json.loads(known.stdout) == [{"n": 4}]
    assert unknown.exit_code == 1
    assert "geography(1)" in unknown.stderr


def test_ls_counts_the_objects_of_each_store(run: Run, sample: str) -> None:
    """The sum is what a bucket bills for the stores."""
    rows = json.loads(run("ls", sample, "--files", "-o", "json").stdout)

    files = [
        path
        for path in Path(sample).glob("state/*/[01]/**/*")
        if path.is_file() and not path.name.startswith(".")
    ]
    assert [(row["operator"], row["partition"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert sum(row["objects"] for row in rows) == len(files)
    assert sum(row["bytes"] for row in rows) == sum(path.stat().st_size for path in files)


def test_ls_lists_the_batches(run: Run, sample: str) -> None:
    """The watermark says how far the state may have been cleaned."""
    lines = run("ls", sample, "--batches", "-o", "ndjson").stdout.splitlines()

    assert len(lines) == 9
    assert json.loads(lines[3]) == {
        "batch": 3,
        "watermark": "2026-03-01T09:08:00Z",
        "provider": "cairn",
        "format": 2,
        "partitions": 2,
    }


def test_ls_shows_a_watermark_after_the_year_9999(run: Run, sample: str, tmp_path: Path) -> None:
    """A source with a wrong clock moves the watermark to any time that a long can have."""
    copy = tmp_path / "copy"
    shutil.copytree(sample, copy)
    commit = copy / "commits/8"
    commit.write_text(commit.read_text().replace(":1772357280000,", f":{2**63 - 1},"))

    done = run("ls", str(copy), "--batches", "-o", "json")

    assert json.loads(done.stdout)[-1]["watermark"] == "292278994-08-17T07:12:55.807Z"


# -- show ----------------------------------------------------------------------------------------


def test_show_prints_the_rows_of_a_store(run: Run, sample: str) -> None:
    """What the query has computed, without Spark."""
    done = run("show", sample, *TOTAL)

    assert done.exit_code == 0
    assert done.stderr == ""
    assert done.stdout == (
        "customer  orders    paid  partition\n"
        "ann           14  342.05          0\n"
        "bob            8  199.40          1\n"
        "cid            5  107.00          1\n"
        "dora           4  107.90          1\n"
    )


def test_show_reads_an_earlier_batch_and_a_part_of_it(run: Run, sample: str) -> None:
    """Batch, partition, columns and limit are chosen together."""
    selection = ("--batch", "1", "--partition", "1", "--column", "paid", "--column", "customer")

    done = run("show", sample, *TOTAL, *selection, "--limit", "1", "-o", "csv")

    assert done.stdout == "paid,customer\n12.05,bob\n"


def test_show_prints_the_columns(run: Run, sample: str) -> None:
    """One sees what a key needs before one asks for it."""
    done = run("show", sample, "--store", "by_product", "--schema", "-o", "csv")

    assert done.stdout == (
        "column,type,is_key,is_opaque\n"
        "customer,large_string,true,false\n"
        "product,large_string,true,false\n"
        "orders,int64,false,false\n"
        'paid,"decimal128(12, 2)",false,false\n'
        "partition,int32,false,false\n"
    )


def test_show_writes_a_file_instead(run: Run, sample: str, tmp_path: Path) -> None:
    """Types stay what they are: decimals are no text there."""
    file = tmp_path / "total.parquet"

    done = run("show", sample, *TOTAL, "--to", str(file))

    assert done.stdout == ""
    table = pq.read_table(file)
    assert table.num_rows == 4
    assert str(table.schema.field("paid").type) == "decimal128(12, 2)"


# -- get -----------------------------------------------------------------------------------------


def test_get_finds_a_key_in_every_store_that_has_it(run: Run, sample: str) -> None:
    """A support case begins with one key, not with the name of a store."""
    lines = run("get", sample, "--key", ANN, "-o", "ndjson").stdout.splitlines()
    rows = [json.loads(line) for line in lines]

    assert [row["name"] for row in rows] == ["by_product"] * 3 + ["last_orders"] * 3 + ["total"]
    assert rows[-1] == {
        "operator": 0,
        "name": "total",
        "partition": 0,
        "key": {"customer": "ann"},
        "value": {"orders": 14, "paid": "342.05"},
    }


def test_get_of_a_key_that_nobody_has(run: Run, sample: str) -> None:
    """The output is still JSON; the exit code says the rest."""
    done = run("get", sample, "--key", '{"customer": "zoe"}', "-o", "json")

    assert done.exit_code == 4
    assert done.stdout == "[]\n"
    assert "[CAIRN_NOT_THERE] no store has the key at batch 8" in done.stderr


def test_get_searches_the_stores_that_are_named(run: Run, sample: str) -> None:
    """Also those that an operator has for itself."""
    store = ("--operator", "1", "--store", "left-keyToNumValues")

    done = run("get", sample, "--key", '{"field0": 5}', *store, "-o", "csv")

    assert done.stdout.splitlines()[1:] == [
        '1,left-keyToNumValues,0,"{""field0"": 5}","{""value"": 1}"'
    ]


def test_a_query_without_state_has_no_stores(run: Run, tmp_path: Path) -> None:
    """It is no error: a program may look at all queries of a bucket."""
    conf = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    entry = {"conf": {"spark.sql.streaming.stateStore.providerClass": conf}}
    for name, text in (("offsets", json.dumps(entry) + "\n{}"), ("commits", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text(f"v1\n{text}")

    outputs = [
        run(*arguments, "-o", "json")
        for arguments in (
            ["ls", str(tmp_path)],
            ["query", str(tmp_path)],
            ["diff", str(tmp_path), "0", "0"],
            ["get", str(tmp_path), "--key", ANN],
            ["diff", str(tmp_path), "0", "0", "--operator", "1"],
        )
    ]

    assert [done.exit_code for done in outputs] == [0, 0, 0, 4, 4]
    assert [done.stdout for done in outputs] == ["[]\n"] * 4 + [""]


# -- query ---------------------------------------------------------------------------------------


def test_query_lists_the_tables(run: Run, sample: str) -> None:
    """Also without DuckDB."""
    rows = json.loads(run("query", sample, "-o", "json").stdout)

    names = list(dict.fromkeys(row["table"] for row in rows))
    assert names[:3] == ["op0_by_product", "op0_last_orders", "op0_total"]
    assert names[3:] == ["op1_left", "op1_right"]
    types = {(row["table"], row["column"]): (row["type"], row["is_key"]) for row in rows}
    assert types["op1_left", "ordered_at"] == ("timestamp[us, tz=UTC]", False)
    assert types["op0_total", "customer"] == ("large_string", True)


def test_query_joins_stores(run: Run, sample: str) -> None:
    """What the state says about itself: do totals and products agree?"""
    sql = (
        "select customer, t.paid, sum(p.paid) as parts from op0_total t join op0_by_product p "
        "using (customer) group by all order by customer"
    )

    done = run("query", sample, sql, "-o", "csv")

    assert done.stdout == (
        "customer,paid,parts\n"
        "ann,342.05,342.05\nbob,199.40,199.40\ncid,107.00,107.00\ndora,107.90,107.90\n"
    )


def test_query_reads_a_table_as_often_as_it_is_named(run: Run, sample: str) -> None:
    """A stream that DuckDB could read once would make a join with itself empty."""
    sql = "select count(*) as n from OP0_TOTAL a, op0_total b where a.paid >= b.paid"

    assert json.loads(run("query", sample, sql, "-o", "json").stdout) == [{"n": 10}]


def test_query_reads_only_what_it_names(run: Run, damaged: Path) -> None:
    """A damaged or very large store must not be in the way of another one."""
    done = run("query", str(damaged), "select count(*) as n from op1_left", "-o", "csv")

    assert done.stdout == "n\n32\n"


def test_a_failure_below_a_query_is_that_of_the_reader(run: Run, damaged: Path) -> None:
    """DuckDB would call it an invalid input, without code and object."""
    done = run("query", str(damaged), "select count(*) from op0_total")

    assert done.exit_code == 1
    assert done.stderr.startswith("Error: [CAIRN_MISSING] there is no changelog of version")


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("selec 1", 1, "syntax error"),
        ("select * from op7", 1, "The tables are op0_by_product, op0_last_orders, op0_total"),
        ("select nope from op0_total", 1, "nope"),
        (" ", 2, "no statement"),
    ],
)
def test_a_wrong_sql_is_explained(run: Run, sample: str, sql: str, code: int, words: str) -> None:
    """Without a traceback."""
    done = run("query", sample, sql)

    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr


def test_query_without_duckdb_says_what_to_install(
    run: Run, sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra of the package."""
    monkeypatch.setitem(sys.modules, "duckdb", None)

    done = run("query", sample, "select 1")

    assert done.exit_code == 1
    assert 'pip install "cairn-state[query]"' in done.stderr
    assert done.stderr.count("\n") == 1


# -- diff, history, verify -----------------------------------------------------------------------


def test_diff_shows_what_a_batch_changed(run: Run, sample: str) -> None:
    """Three kinds of changes; a changed key has both values."""
    done = run("diff", sample, "0", "1", *TOTAL, "-o", "csv")

    assert done.exit_code == 3
    assert done.stdout == (
        "operator,name,change,partition,key,value\n"
        '0,total,changed_from,0,"{""customer"": ""ann""}","{""orders"": 2, ""paid"": ""31.15""}"\n'
        '0,total,changed_to,0,"{""customer"": ""ann""}","{""orders"": 4, ""paid"": ""52.80""}"\n'
        '0,total,added,1,"{""customer"": ""cid""}","{""orders"": 1, ""paid"": ""19.10""}"\n'
        '0,total,added,1,"{""customer"": ""dora""}","{""orders"": 1, ""paid"": ""33.20""}"\n'
    )


def test_diff_of_all_stores(run: Run, sample: str) -> None:
    """The last batch only removes rows that the watermark has passed."""
    rows = json.loads(run("diff", sample, "7", "latest", "-o", "json").stdout)

    assert [(row["name"], row["change"]) for row in rows] == [("right", "removed")] * 4


def test_diff_of_equal_states_is_empty(run: Run, sample: str, tmp_path: Path) -> None:
    """Exit 0 is what a test of a migration asks for."""
    copy = tmp_path / "copy"
    shutil.copytree(sample, copy)

    done = run("diff", sample, "8", "8", "--other", str(copy), "-o", "json")
    limited = run("diff", sample, "0", "8", "--limit", "0", "-o", "json")

    assert (done.exit_code, done.stdout) == (0, "[]\n")
    assert (limited.exit_code, limited.stdout) == (3, "[]\n")


def test_history_shows_each_change_of_a_key(run: Run, sample: str) -> None:
    """At which batch did it go wrong?"""
    key = ("--key", '{"customer": "dora"}', "--store", "total", "-o", "json")

    rows = json.loads(run("history", sample, *key).stdout)
    later = json.loads(run("history", sample, *key, "--first", "3", "--last", "5").stdout)

    assert [(row["batch"], row["change"]) for row in rows] == [
        (1, "added"),
        (3, "changed"),
        (4, "changed"),
        (6, "changed"),
    ]
    assert rows[0]["before"] == []
    assert rows[0]["after"][0] == {"customer": "dora", "orders": 1, "paid": "33.20", "partition": 1}
    assert [(row["batch"], row["change"]) for row in later] == [(3, "first"), (4, "changed")]


def test_verify_finds_what_is_gone(run: Run, damaged: Path) -> None:
    """The row says what it means and what mends it; exit 3 is for alarms."""
    done = run("verify", str(damaged), "-o", "json")

    assert done.exit_code == 3
    rules = {(row["severity"], row["rule"], row["operator"]) for row in json.loads(done.stdout)}
    assert ("error", "state-unreadable", 0) in rules
    assert all(row["meaning"] and row["cure"] for row in json.loads(done.stdout))


# -- doctor --------------------------------------------------------------------------------------


def test_doctor_has_an_exit_code_for_problems(run: Run, sample: str) -> None:
    """A start script asks before it submits the job; `cairn conf` prints what doctor takes."""
    settings = run("conf", "workers=2").stdout.split()

    healthy = run("doctor", sample, *settings, "-o", "json")
    ill = run("doctor", *settings, "--conf", f"{_PREFIX}wokers=2")

    assert healthy.exit_code == 0
    assert {row["status"] for row in json.loads(healthy.stdout)} == {"ok"}
    assert ill.exit_code == 3
    (row,) = (line for line in ill.stdout.splitlines() if " problem " in line)
    assert f"the nearest one is {_PREFIX}workers" in row
    assert row.endswith("correct the name")


def test_doctor_works_where_a_package_is_missing() -> None:
    """That is when it is needed."""
    program = (
        "import sys\nsys.modules['pyarrow'] = sys.modules['numpy'] = None\n"
        "from cairn.cli.main import main\nmain(['doctor', 's3://b/x', '-o', 'json'])"
    )

    done = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    rows = {row["check"]: row["status"] for row in json.loads(done.stdout)}
    assert done.returncode == 3
    assert rows["package pyarrow"] == rows["package numpy"] == rows["location"] == "problem"


# -- bisect --------------------------------------------------------------------------------------

DORA = "exists (from op0_total where customer = 'dora')"


@pytest.mark.parametrize(
    ("options", "looks"),
    [
        ((), [(0, "false"), (1, "true"), (2, "true"), (4, "true"), (8, "true")]),
        (("--every",), [(0, "false"), (1, "true")]),
        (("--first", "1", "--last", "2"), [(1, "true"), (2, "true")]),
    ],
)
def test_bisect_finds_the_first_batch(
    run: Run, sample: str, options: tuple[str, ...], looks: list[tuple[int, str]]
) -> None:
    """At which batch did it go wrong? The batches that were looked at are the evidence."""
    done = run("bisect", sample, DORA, *options, "-o", "json")

    rows = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [(row["batch"], row["condition"]) for row in rows] == looks
    assert [row["batch"] for row in rows if row["is_first"]] == [1]
    assert ("oldest one" in done.stderr) == ("--first" in options)


@pytest.mark.parametrize(
    ("condition", "option", "text"),
    [
        ("false -- never", "--every", "false"),
        ("select max(orders) > 1 from op0_total where customer = 'nobody';", "--monotonic", "null"),
    ],
)
def test_bisect_at_no_batch_has_an_exit_code(
    run: Run, sample: str, condition: str, option: str, text: str
) -> None:
    """NULL is not true: the maximum of no rows is no error."""
    done = run("bisect", sample, condition, option, "-o", "json")

    rows = json.loads(done.stdout)
    assert done.exit_code == 4
    assert "true at no batch" in done.stderr
    assert {row["condition"] for row in rows} == {text}
    assert len(rows) == (9 if option == "--every" else 1)


def test_bisect_passes_over_batches_whose_state_is_gone(
    run: Run, sample: str, tmp_path: Path
) -> None:
    """The logs keep more batches than the stores."""
    copy = tmp_path / "copy"
    shutil.copytree(sample, copy)
    for version in (1, 2, 3):
        for changelog in copy.glob(f"state/0/*/changelog/{version}_*"):
            changelog.unlink()

    done = run("bisect", str(copy), DORA, "--every", "-o", "csv")

    assert done.stdout == (
        "batch,condition,is_first\n0,gone,false\n1,gone,false\n2,gone,false\n3,gone,false\n"
        "4,true,true\n"
    )
    assert "Batch 4 is the oldest one" in done.stderr


# -- cost ----------------------------------------------------------------------------------------


def test_cost_has_the_options_of_the_api(run: Run, sample: str, tmp_path: Path) -> None:
    """Whoever has other prices, or another trigger, gets the bill of that."""
    table = {"name": "ours", "currency": "EUR", "date": "2026-01", "storage_per_gib_month": 0}
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({**table, "per_1000_requests": {"put": 1, "copy": 1}}))
    options = ("--prices", str(file), "--interval", "3600", "--file-manager", "rename")

    rows = {
        row["part"]: row for row in json.loads(run("cost", sample, *options, "-o", "json").stdout)
    }
    basis = json.loads(run("cost", sample, *options, "--basis", "-o", "json").stdout)
    advice = json.loads(run("cost", sample, *options, "--advice", "-o", "json").stdout)

    files_per_batch = 2 + 16 / 9
    assert rows["logs"]["price"] == round(2 * files_per_batch * 730 / 1000, 4)
    assert rows["total"]["currency"] == "EUR"
    given = {row["name"] for row in basis if row["source"] == "given"}
    assert given == {"prices", "interval_s", "file_manager"}
    assert [row["name"] for row in advice] == ["longer-trigger", "file-manager"]


# -- what all have in common ---------------------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float,),
    "boolean": (bool,),
    "object": (dict,),
    "array of objects": (list,),
    "array of strings": (list,),
    "null": (type(None),),
}


@pytest.mark.parametrize(
    ("arguments", "tables"),
    [
        (["ls", "--all", "--count"], "STORE_FIELDS ALL_FIELDS COUNT_FIELDS"),
        (["ls", "--batches"], "BATCH_FIELDS"),
        (["ls", "--files"], "FILE_FIELDS"),
        (["show", "--store", "total", "--schema"], "SCHEMA_FIELDS"),
        (["query"], "TABLE_FIELDS"),
        (["get", "--key", ANN], "FIELDS"),
        (["diff", "0", "8"], "FIELDS"),
        (["history", "--key", ANN, "--store", "total"], "FIELDS"),
        (["verify"], "FIELDS"),
        (["bisect", "exists (from op0_total)"], "FIELDS"),
        (["doctor"], "FIELDS"),
        (["cost"], "PART_FIELDS"),
        (["cost", "--basis"], "BASIS_FIELDS"),
        (["cost", "--advice"], "ADVICE_FIELDS"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_the_json_is_what_the_document_says(
    run: Run, sample: str, arguments: list[str], tables: str
) -> None:
    """docs/commands.md is made from these tables; scripts rely on names and types."""
    verb, *options = arguments
    module = import_module(f"cairn.cli.{verb}")
    fields: Fields = sum((getattr(module, name) for name in tables.split()), ())

    rows: list[dict[str, Any]] = json.loads(run(verb, sample, *options, "-o", "json").stdout)

    assert rows
    for row in rows:
        assert list(row) == [field.name for field in fields]
        for field in fields:
            allowed = sum((_TYPES[one] for one in field.type.split(" or ")), ())
            assert type(row[field.name]) in allowed, field.name


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ls", "/nowhere"], 4, "there is no offset log here"),
        (["show", "SAMPLE", "--batch", "99"], 4, "committed are: 0 to 8"),
        (["show", "SAMPLE", "--operator", "7"], 4, "there are: 0, 1"),
        (["show", "SAMPLE", "--store", "nope"], 4, "it has: "),
        (["get", "SAMPLE", "--key", ANN, "--store", "nope"], 4, "0/by_product"),
        (["diff", "SAMPLE", "0", "99"], 4, "batch 99"),
        (["history", "SAMPLE", "--key", ANN, "--store", "nope"], 4, "it has: "),
        (["query", "SAMPLE", "select 1", "--batch", "9"], 4, "batch 9"),
        (["show", "SAMPLE"], 1, "by_product, last_orders, total"),
        (["show", "SAMPLE", *TOTAL, "--partition", "2"], 1, "there is no partition 2"),
        (["show", "SAMPLE", *TOTAL, "--column", "x"], 1, "there is no column 'x'"),
        (["ls", "SAMPLE", "--hadoop-conf", "a=b"], 1, "no effect on this storage"),
        (["show", "SAMPLE", "--batch", "-1"], 2, "neither a number of a batch nor 'latest'"),
        (["show", "SAMPLE", "--batch", "9" * 5_000], 2, "a number of 5,000 digits"),
        (["clone", "SAMPLE@" + "9" * 5_000, "--to", "x"], 2, "a number of 5,000 digits"),
        (["show", "SAMPLE", *TOTAL, "--to", "x.csv"], 2, "does not end with .parquet"),
        (["show", "SAMPLE", *TOTAL, "--to", "/nowhere/x.parquet"], 2, "'/nowhere' does not exist"),
        (["show", "SAMPLE", *TOTAL, "--to", "x.parquet", "-o", "csv"], 2, "Leave one out"),
        (["show", "SAMPLE", *TOTAL, "--to", "x.parquet", "--schema"], 2, "rows of a store"),
        (["get", "SAMPLE", "--key", "ann"], 2, "is not JSON"),
        (["get", "SAMPLE", "--key", '["ann"]'], 2, "not a JSON object"),
        (["get", "SAMPLE", "--key", "[" * 100_000], 2, "too many objects or arrays"),
        (["get", "SAMPLE", "--key", '{"field0": 1.5}'], 2, "is not of type int64"),
        (["get", "SAMPLE", "--key", '{"field0": true}'], 2, "is not of type int64"),
        (["get", "SAMPLE", "--key", '{"customer": true}'], 2, "is not of type large_string"),
        (["get", "SAMPLE", "--key", '{"field0": 5e-1000000000}'], 2, "too large or too small"),
        (["get", "SAMPLE", "--key", '{"field0": 1e999999999999999999999}'], 2, "too large or"),
        (["history", "SAMPLE", *TOTAL, "--key", '{"nix": 1}'], 2, "it has: customer"),
        (["history", "SAMPLE", *TOTAL, "--key", '{"customer": true}'], 2, "large_string"),
        (["erase", "SAMPLE", "--key", '{"customer": true}'], 2, "is not of type large_string"),
        (["get", "SAMPLE", "--key", '{"x": 1}'], 2, "0/total: customer"),
        (["get", "SAMPLE", "--key", '{"field0": "x"}'], 2, "is not of type int64"),
        (["ls", "SAMPLE", "--files", "--count"], 2, "exclude each other"),
        (["doctor", "--write"], 2, "--write needs a LOCATION"),
        (["doctor", "SAMPLE", "--conf", "x"], 2, "'x' has no value"),
        (["doctor", " "], 2, "checkpointLocation"),
        (["bisect", "SAMPLE", "select 1"], 2, "a value of type int32, not true or false"),
        (["bisect", "SAMPLE", "true; false"], 1, "syntax error"),
        (["bisect", "SAMPLE", "select orders > 1 from op0_total"], 1, "More than one row"),
        (["bisect", "SAMPLE", "nope > 1"], 1, "nope"),
        (["bisect", "SAMPLE", "exists (from op7)"], 1, "The tables are op0_by_product"),
        (["bisect", "/nowhere", "true"], 4, "there is no offset log here"),
        (["cost", "SAMPLE", "--basis", "--advice"], 2, "exclude each other"),
        (["cost", "SAMPLE", "--interval", "0"], 2, "--interval"),
        (["cost", "SAMPLE", "--interval", "1e-320"], 1, "must be 1e-06 s or more"),
        (["cost", "SAMPLE", "--prices", "SAMPLE/metadata"], 1, "id is not a field"),
        (["cost", "/nowhere"], 4, "there is no offset log here"),
        (["ls", "SAMPLE", "--hadoop-conf", "a"], 2, "'a' has no value"),
        (["ls", " "], 2, "checkpointLocation"),
    ],
    ids=lambda value: " ".join(value)[:80] if isinstance(value, list) else "",
)
def test_an_error_has_its_exit_code_and_no_output(
    run: Run, sample: str, arguments: list[str], code: int, words: str
) -> None:
    """Scripts branch on the code: a wrong call, a wrong place, or a fault."""
    done = run(*(one.replace("SAMPLE", sample) for one in arguments))

    assert (done.exit_code, done.stdout) == (code, "")
    assert words in done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit)
