"""The options that commands share: location and storage, batch, stores, key, limit.

Layer: cli. Each is a decorator; the command gets one argument, ready for use, under the name that
the decorator says.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cairn.opening import open_checkpoint

if TYPE_CHECKING:
    from cairn.reader.checkpoint import Checkpoint

Command = TypeVar("Command", bound=Callable[..., Any])

LATEST = "latest"
_EXPONENT_MAX = 400
_SHOWN_CHARS = 40

_LOCATION_HELP = """\
LOCATION is the query's checkpointLocation: a folder; s3://bucket/path (or s3a), with credentials
from the AWS chain (AWS_PROFILE, AWS_ACCESS_KEY_ID, ...); or the URL of another file system that
Hadoop reaches, such as hdfs://..., with settings from HADOOP_CONF_DIR. For the last one the command
starts a JVM, and needs an installed Spark. A path without a scheme is a local folder: write the
whole URL where the job leaves it to fs.defaultFS."""


_OF_STORAGE = (
    "to_s3_endpoint",
    "to_s3_region",
    "s3_endpoint",
    "s3_region",
    "hadoop_conf",
    "jars",
)


class CheckpointCommand(click.Command):
    """A command with a LOCATION.

    Its help explains the location after the function's docstring, and has the options of storage
    last.
    """

    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002 - click's own
        params: list[click.Parameter],
        **settings: Any,  # noqa: ANN401 - any of click's
    ) -> None:
        super().__init__(
            name,
            help=f"{inspect.cleandoc(help)}\n\n{_LOCATION_HELP}",
            params=sorted(params, key=lambda one: one.name in _OF_STORAGE),
            **settings,
        )


@dataclass(frozen=True)
class Place:
    """Where a checkpoint is.

    Attributes:
        location: a folder or URL.
        options: of its storage, as ``cairn.open_checkpoint`` takes them.
    """

    location: str
    options: Mapping[str, Any]

    def open(self) -> Checkpoint:
        """Open the checkpoint; the caller closes it."""
        return open_checkpoint(self.location, storage_options=self.options)


@dataclass(frozen=True)
class Stores:
    """Which stores are meant.

    Attributes:
        operator: its number; ``None``: not said.
        store: Spark's name or the short one; ``None``: not said.
        family: Spark's name of the column family; ``None``: not said.
    """

    operator: int | None = None
    store: str | None = None
    family: str | None = None


def _location(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty; name the query's checkpointLocation.")
    return value


def _url(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value and not value.startswith(("http://", "https://")):
        raise click.BadParameter(f"{value!r} is not a URL; write it as https://host[:port].")
    return value


def name_and_value(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Return the pairs of an option that is given as name=value.

    Raises:
        BadParameter: one has no name or no value.
    """
    settings = {}
    for setting in values:
        name, has_value, value = setting.partition("=")
        if not name or not has_value:
            raise click.BadParameter(f"{setting!r} has no value; write it as name=value.")
        settings[name] = value
    return settings


def with_place(command: Command) -> Command:
    """Add LOCATION and the options of its storage; the command gets ``place``."""
    return _with_place(command, is_required=True)


def with_place_or_none(command: Command) -> Command:
    """Add a LOCATION that may be left out: then ``place`` is ``None``."""
    return _with_place(command, is_required=False)


def _with_place(command: Command, *, is_required: bool) -> Command:
    @functools.wraps(command)
    def run(
        *,
        location: str | None,
        s3_endpoint: str,
        s3_region: str,
        hadoop_conf: dict[str, str],
        jars: tuple[str, ...],
        **others: object,
    ) -> object:
        options = {
            "endpoint_url": s3_endpoint,
            "region": s3_region,
            "hadoop_conf": hadoop_conf,
            "jars": jars,
        }
        place = None if location is None else Place(location, options)
        return command(place=place, **others)

    parameters = [
        # Only shells use the type, to complete the names of folders.
        click.argument(
            "location",
            type=click.Path(file_okay=False),
            callback=_location,
            required=is_required,
        ),
        click.option(
            "--s3-endpoint",
            default="",
            metavar="URL",
            callback=_url,
            help="URL of an S3 service other than AWS, e.g. https://minio:9000.",
        ),
        click.option(
            "--s3-region", default="", help="Region of the S3 service. Default: from the AWS chain."
        ),
        click.option(
            "--hadoop-conf",
            multiple=True,
            metavar="NAME=VALUE",
            callback=name_and_value,
            help="Setting of Hadoop's, not for S3 and local files; may be repeated.",
        ),
        click.option(
            "--jar",
            "jars",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False),
            help="Jar of a file system that Spark does not have, e.g. hadoop-azure; "
            "may be repeated.",
        ),
    ]
    decorated: Command = _with(run, parameters)
    return decorated


_NEW_PLACE = "The new checkpointLocation: an empty place, on any storage."


def with_target(command: Command) -> Command:
    """Add --to and the options of its storage; the command gets ``target``.

    REQUIRES: ``with_place``, applied after this. What is not said is as for LOCATION.
    """
    return _with_other_place("--to", _NEW_PLACE, is_required=True)(command)


def with_target_or_none(command: Command) -> Command:
    """Add a --to that may be left out: then ``target`` is ``None``."""
    return _with_other_place("--to", _NEW_PLACE, is_required=False)(command)


def with_files(flag: str, help: str) -> Callable[[Command], Command]:  # noqa: A002 - click's name
    """Add a place of files, or one file, as ``with_target`` adds a place, under another name."""
    return _with_other_place(flag, help, is_required=True, may_be_file=True)


def _with_other_place(
    flag: str,
    help: str,  # noqa: A002 - click's name
    *,
    is_required: bool,
    may_be_file: bool = False,
) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            *,
            place: Place,
            target_location: str | None,
            to_s3_endpoint: str | None,
            to_s3_region: str | None,
            **others: object,
        ) -> object:
            own = {"endpoint_url": to_s3_endpoint, "region": to_s3_region}
            said = {name: value for name, value in own.items() if value is not None}
            target = Place(target_location, {**place.options, **said}) if target_location else None
            return command(place=place, target=target, **others)

        parameters = [
            click.option(
                flag,
                "target_location",
                required=is_required,
                type=click.Path(file_okay=may_be_file),
                callback=_location,
                metavar="LOCATION",
                help=help,
            ),
            click.option(
                f"{flag}-s3-endpoint",
                "to_s3_endpoint",
                metavar="URL",
                callback=_url,
                help="URL of the S3 service there. Default: --s3-endpoint.",
            ),
            click.option(
                f"{flag}-s3-region",
                "to_s3_region",
                help="Region of the S3 service there. Default: --s3-region.",
            ),
        ]
        decorated: Command = _with(run, parameters)
        return decorated

    return decorate


def batch_number(digits: str) -> int:
    """Return the number of a batch.

    Raises:
        BadParameter: it has more digits than any batch.
    """
    try:
        return int(digits)
    except ValueError as problem:  # Python reads no number of thousands of digits
        text = f"no batch has a number of {len(digits):,} digits."
        raise click.BadParameter(text) from problem


class BatchNumber(click.ParamType[int | None]):
    """A number of a batch, or ``latest``, which is ``None``."""

    name = "batch"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number."""
        if value == LATEST:
            return None
        text = str(value)
        if not (text.isascii() and text.isdecimal()):
            self.fail(f"{value!r} is neither a number of a batch nor {LATEST!r}.", param, ctx)
        return batch_number(text)


with_batch: Callable[[Command], Command] = click.option(
    "--batch",
    type=BatchNumber(),
    default=LATEST,
    show_default=True,
    metavar="N|latest",
    help="Batch whose state is read.",
)


def with_stores(command: Command) -> Command:
    """Add the options that name stores; the command gets ``stores``."""

    @functools.wraps(command)
    def run(
        *, operator: int | None, store: str | None, family: str | None, **others: object
    ) -> object:
        return command(stores=Stores(operator, store, family), **others)

    parameters = [
        click.option(
            "--operator",
            type=click.IntRange(min=0),
            metavar="N",
            help="Number of the stateful operator.",
        ),
        click.option(
            "--store",
            metavar="NAME",
            help="Store: Spark's name of it, or the short name that ls shows, such as left, right, "
            "or a variable of transformWithState.",
        ),
        click.option(
            "--family",
            metavar="NAME",
            help="Spark's name of the column family, if the store has several.",
        ),
    ]
    decorated: Command = _with(run, parameters)
    return decorated


def _number(text: str) -> Decimal:
    """Return a number exactly; one that no type has can take all memory, or end the process."""
    try:
        number = Decimal(text)
    except InvalidOperation as problem:
        raise click.BadParameter(f"{text[:_SHOWN_CHARS]} is too large or too small.") from problem
    if abs(number.adjusted()) > _EXPONENT_MAX:
        raise click.BadParameter(f"{text[:_SHOWN_CHARS]} is too large or too small.")
    return number


def _key(_: click.Context, __: click.Parameter, value: str) -> dict[str, Any]:
    try:
        key = json.loads(value, parse_float=_number)
    except ValueError as problem:
        raise click.BadParameter(f"{value!r} is not JSON: {problem}.") from problem
    except RecursionError as problem:
        raise click.BadParameter("it has too many objects or arrays in each other.") from problem
    if not isinstance(key, dict) or not key:
        raise click.BadParameter('it is not a JSON object such as {"user": "ann"}.')
    return key


with_key: Callable[[Command], Command] = click.option(
    "--key",
    required=True,
    metavar="JSON",
    callback=_key,
    help="""Key as a JSON object of its columns, e.g. '{"user": "ann"}'. Values are written """
    "as in the output. With some of the key's columns: all keys that have these values; partitions "
    "are then read whole.",
)

with_limit: Callable[[Command], Command] = click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of rows after which reading stops.",
)

with_partitions: Callable[[Command], Command] = click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Partition that is read; may be repeated. Default: all.",
)


def with_apply(help: str) -> Callable[[Command], Command]:  # noqa: A002 - click's own name
    """Add --apply; the command gets ``is_applied``."""
    return click.option("--apply", "is_applied", is_flag=True, help=help)


with_local_dir: Callable[[Command], Command] = click.option(
    "--local-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder on the local disk for new snapshots, as large as the largest partition. "
    "Default: the folder of temporary files.",
)


with_processes: Callable[[Command], Command] = click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that move stores at the same time. Default: one per processor.",
)


def _with(run: Any, parameters: list[Callable[[Any], Any]]) -> Any:  # noqa: ANN401 - a decorator
    for parameter in reversed(parameters):
        run = parameter(run)
    return run
