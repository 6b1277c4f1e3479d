"""`cairn report`: a page that a browser shows without a network, with the numbers of the API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from click.testing import Result

import cairn
from cairn.cli.charts import level_of
from cairn.cli.markup import element, visible
from cairn.cli.report_page import render
from cairn.cli.report_values import duration_text, size_text
from cairn.reader.family_rows import LargeKey
from cairn.reader.findings import Finding
from cairn.reader.report import PartitionFigures, Report

Run: TypeAlias = Callable[..., Result]

EVIL = "</code></title></style><script>alert('1')</script><img src=x onerror=\"a&b\"> \x00\u202e"
SHOWN = EVIL.replace("\x00", "\\x00").replace("\u202e", "\\u{202e}")


@pytest.fixture
def report(sample: str) -> Report:
    """Return the report of the sample checkpoint."""
    return cairn.open_checkpoint(sample).report()


def parsed(page: str) -> ET.Element:
    """Return the page; it is well-formed as XML, so that no browser has to guess."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))  # noqa: S314 - our own page


def table(page: ET.Element, caption: str) -> list[list[str]]:
    """Return the cells of the only table with a caption: of numbers the exact one."""
    (found,) = (one for one in page.iter("table") if caption == one.findtext("caption"))
    return [[_cell(one) for one in row.iter("td")] for row in found.iter("tr")][1:]


def _cell(cell: ET.Element) -> str:
    data = cell.find("data")
    return "".join(cell.itertext()) if data is None else data.attrib["value"]


def test_the_file_has_the_page(run: Run, sample: str, tmp_path: Path) -> None:
    """Nothing is left beside it, and standard output stays empty for scripts."""
    done = run("report", sample, "--to", str(tmp_path / "report.html"))

    assert (done.exit_code, done.output) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    page = parsed((tmp_path / "report.html").read_text())
    assert page.findtext("head/title") == f"State of {sample}, batch 8"


def test_two_commands_may_write_the_page_at_a_time(
    run: Run, sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report of every hour may take longer than an hour; each page is whole."""
    path = tmp_path / "report.html"
    parts: list[str] = []
    replace = Path.replace

    def other_writes_first(part: Path, target: Path) -> Path:
        parts.append(part.name)
        if len(parts) == 1:
            assert run("report", sample, "--to", str(path)).exit_code == 0
            assert part.exists()
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", other_writes_first)

    done = run("report", sample, "--to", str(path))

    assert (done.exit_code, len(set(parts))) == (0, 2)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_nothing_comes_from_elsewhere(report: Report) -> None:
    """The page is opened where there is no network, and is sent by mail: it asks nobody."""
    page = parsed(render(report))

    names = {one.tag for one in page.iter()}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "image", "use"}
    for one in page.iter():
        for name, value in one.attrib.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "action", "data", "style")
            assert name != "href" or re.fullmatch(r"#[a-z]+", value)
    style = "".join(one.text or "" for one in page.iter("style"))
    assert not re.search(r"url\(|@import|expression", style)
    policies = [one.get("content") for one in page.iter("meta") if one.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_tables_have_the_numbers_of_the_api(report: Report) -> None:
    """Who reads the page and who reads the API must not come to different ends."""
    page = parsed(render(report))

    families = {
        (row[0].split()[0], row[1].split()[0]): row[2:5] for row in table(page, "Families by size")
    }
    assert families == {
        (str(one.operator), one.name): [str(one.keys), str(one.rows), str(one.row_bytes)]
        for one in report.families
    }
    for operator in (0, 1):
        rows = table(page, f"All partitions of store {operator}/default")
        partitions = {
            str(one.partition): [one.keys, one.row_bytes, one.objects, one.stored_bytes]
            for one in report.partitions
            if one.operator == operator
        }
        assert {row[0]: list(map(int, row[1:])) for row in rows} == partitions
    batches = [[row[0], row[4], row[5], row[8]] for row in table(page, "Batches")]
    assert batches == [
        [str(one.batch), str(one.commits), str(one.change_bytes), str(one.load_bytes)]
        for one in report.batches
    ]
    keys = [row[1:] for row in table(page, "Keys")]
    columns = ((1, "left"), (0, "by_product"), (1, "right"), (0, "last_orders"), (0, "total"))
    assert keys == [
        [str(one.keys[column]) for column in columns] for one in report.batches if one.keys
    ]
    assert dict(table(page, "Requests")) == {
        name: str(count) for name, count in report.reads.requests.items()
    }
    assert len(table(page, "What is wrong")) == len(report.findings) == 2


def _charts(page: ET.Element) -> Iterator[ET.Element]:
    for one in page.iter():
        if one.get("role") == "img":
            yield one


def test_each_chart_has_a_text(report: Report) -> None:
    """Screen readers say it; without it a chart is nothing to them."""
    page = parsed(render(report))

    texts = [one.get("aria-label", "") for one in _charts(page)]
    assert "Commits at the batches 0 to 8: 4 at the first, 2 at the last" in "\n".join(texts)
    assert all(len(text) > 20 for text in texts)
    assert len(list(page.iter("figure"))) <= len(texts)


def test_all_that_comes_from_data_is_text(report: Report) -> None:
    """Keys and names are what strangers have sent: they must not become elements."""
    key = pa.table({"customer": [EVIL], "partition": [0]})
    families = tuple(
        replace(
            one,
            name=EVIL + one.name,
            largest=(LargeKey(key, 1 if one.is_list else None, 2, 3),),
            times=tuple(replace(times, column=EVIL) for times in one.times),
            list_lengths=one.list_lengths and replace(one.list_lengths, p50=0),
            value_sizes=one.value_sizes and replace(one.value_sizes, p50=0),
        )
        for one in report.families
    )
    hostile = replace(
        report,
        location=EVIL,
        operators={0: EVIL, 1: EVIL},
        families=families,
        partitions=tuple(replace(one, store=EVIL) for one in report.partitions),
        batches=tuple(
            replace(
                one,
                keys={(number, EVIL + name): 1 for number, name in one.keys or ()},
            )
            for one in report.batches
        ),
        findings=(Finding("orphan", EVIL, EVIL),),
        reads=replace(report.reads, requests={EVIL: 1}),
    )

    text = render(hostile)

    page = parsed(text)
    assert not {one.tag for one in page.iter()} & {"script", "img"}
    assert "\x00" not in text
    assert "\u202e" not in text
    assert page.findtext("head/title") == f"State of {SHOWN}, batch 8"
    cells = ["".join(one.itertext()) for one in page.iter("td")]
    assert sum(SHOWN in cell for cell in cells) > len(report.families)
    # As JSON, in which a quote has an escape of its own.
    assert any('onerror=\\"a&b\\"' in cell for cell in cells)


def test_a_thousand_partitions_are_readable(report: Report) -> None:
    """A bar each would be a smear: the page has a rank, a cell each, and the ten largest."""
    partitions = tuple(
        PartitionFigures(0, "default", number, 3, 5000 + number, number % 700, number % 700 * 40)
        for number in range(1000)
    )

    text = render(replace(report, partitions=partitions))

    page = parsed(text)
    top = [int(row[1]) for row in table(page, "The 10 largest of store 0/default")]
    assert top == sorted((one.keys or 0 for one in partitions), reverse=True)[:10]
    assert len(table(page, "All of store 0/default")) == 1000
    (cells, _) = (one for one in page.iter("div") if one.get("class") == "heat")
    assert [one.get("title") for one in cells][:2] == ["partition 0: 0", "partition 1: 1"]
    assert len(text) < 600_000


def test_a_partition_that_could_not_be_read_is_not_empty(report: Report) -> None:
    """An empty partition is a fault of the keys, an unreadable one of the objects."""
    partitions = tuple(
        replace(one, keys=None, row_bytes=None) if one.partition else one
        for one in report.partitions
    )

    page = parsed(render(replace(report, partitions=partitions)))

    text = "".join(page.itertext())
    assert "1 could not be read, and are not shown." in text
    assert "empty" not in text
    assert ["1", "unknown", "unknown"] in [
        row[:3] for row in table(page, "All partitions of store 0/default")
    ]


def test_a_quick_report_says_what_it_left_out(run: Run, sample: str, tmp_path: Path) -> None:
    """Nobody shall take an absent chart for an absent problem."""
    path = tmp_path / "report.html"

    done = run("report", sample, "--quick", "--batch", "5", "--operator", "1", "--to", str(path))

    assert done.exit_code == 0
    text = "".join(parsed(path.read_text()).itertext())
    assert "State at batch 5" in text
    assert text.count("A quick report reads no rows.") == 2
    assert "Only Spark's logs and the paths of schemas were checked" in text
    assert "by_product" not in text


def test_spark_s_providers_have_no_keys_over_the_batches(report: Report) -> None:
    """The page says so, instead of a chart of zeros."""
    batches = tuple(replace(one, keys=None, load_bytes=None) for one in report.batches)

    page = parsed(render(replace(report, provider="rocksdb", batches=batches)))

    text = "".join(page.itertext())
    assert "Spark's providers store no numbers of keys." in text
    assert "Size of the state" not in text


def test_many_findings_are_cut(report: Report) -> None:
    """A state whose partitions are all damaged has thousands."""
    findings = tuple(Finding("object-missing", f"number {number}") for number in range(1000))

    page = parsed(render(replace(report, findings=findings)))

    assert len(table(page, "What is wrong")) == 200
    assert "And 800 more" in "".join(page.itertext())


@pytest.mark.parametrize(
    ("arguments", "ending"),
    [
        (["--to", "report.pdf"], (2, ".html")),
        (["--to", "/nowhere/report.html"], (2, "/nowhere")),
        ([], (2, "--to")),
        (["--store", "nothing", "--to", "report.html"], (4, "0/by_product")),
        (["--batch", "99", "--to", "report.html"], (4, "0 to 8")),
    ],
)
def test_a_wrong_call_leaves_no_file(
    run: Run,
    sample: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    ending: tuple[int, str],
) -> None:
    """The exit code says whether the call or the choice was wrong."""
    monkeypatch.chdir(tmp_path)

    done = run("report", sample, *arguments)

    assert done.exit_code == ending[0]
    assert ending[1] in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.00 KiB"),
        (10 << 20, "10.0 MiB"),
        (200 << 30, "200 GiB"),
    ],
)
def test_sizes_have_three_digits(value: int, shown: str) -> None:
    """The exact number is in the element."""
    assert size_text(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.02, "20 ms"), (45, "45.0 s"), (90, "1 min 30 s"), (7200, "2 h"), (90_000, "1 d 1 h")],
)
def test_spans_of_time_have_two_units(seconds: float, shown: str) -> None:
    """Batches take seconds, states live for days."""
    assert duration_text(seconds) == shown


@pytest.mark.parametrize(
    ("value", "level"), [(0, 0), (5, 1), (10, 2), (12, 2), (20, 3), (40, 4), (41, 5)]
)
def test_colours_are_ratios_to_the_median(value: int, level: int) -> None:
    """The colour of a partition says how uneven it is, not how large."""
    assert level_of(value, 10) == level
    assert level_of(1, 0) == 5


def test_attributes_and_texts_are_escaped() -> None:
    """A quote ends an attribute, if it is not escaped."""
    made = element("td", "<b>", element("b", "&"), title='"><i>', hidden=None, class_="a")

    assert made == '<td title="&quot;&gt;&lt;i&gt;" class="a">&lt;b&gt;<b>&amp;</b></td>'
    assert visible("a\x1b[0m\u2028\ud800") == "a\\x1b[0m\\u{2028}\\u{d800}"
