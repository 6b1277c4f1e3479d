"""The stateful operators of a query: their stores, and the variables of ``transformWithState``.

Layer: reader.spark.  Spec: docs/spark-formats.md#operator-metadata.

    state/<operator>/_metadata/metadata      "v1" line JSON        ; written once, since Spark 4.0
    state/<operator>/_metadata/v2/<batch>    "v2" line JSON        ; one per batch that changed it
    state/<operator>/<partition>/[<store>/]  the files of a store

Before Spark 4.0 an operator has no metadata: the folder of its first partition shows its stores.
Only that one is listed, so that the number of partitions does not matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import (
    CorruptError,
    DataError,
    FormatVersionError,
    InternalError,
    MissingError,
)
from cairn.format.fields import (
    JsonObject,
    as_flag,
    as_int,
    as_list,
    as_object,
    as_text,
    parse_object,
)
from cairn.format.names import ChangelogName, parse_name
from cairn.format.spark_log import batch_of
from cairn.ids import DEFAULT_STORE
from cairn.storage.base import check_key

if TYPE_CHECKING:
    from cairn.storage.base import ObjectStore

_METADATA_BYTES_MAX = 16 << 20
_INT_MAX = 2**31 - 1
_SCHEMA_FOLDER = "_stateSchema"
# A file of one version of a store, of one of Spark's providers.
_STATE_FILE = re.compile(r"[0-9]+(_[^/]+)?\.(delta|snapshot|zip|changelog)", re.ASCII)


@dataclass(frozen=True, slots=True)
class StateVariable:
    """A variable of ``transformWithState``.

    Attributes:
        name: as the program declares it; timers have a name of Spark's.
        kind: ``ValueState``, ``ListState``, ``MapState`` or ``TimerState``.
        has_ttl: values expire, and are stored with the time at which they do.
    """

    name: str
    kind: str
    has_ttl: bool


@dataclass(frozen=True, slots=True)
class OperatorStore:
    """A store of an operator, in all its partitions.

    Attributes:
        name: Spark's ``storeName``.
        prefix_columns: columns of the key by which Spark scans the store; 0 for none. ``None`` if
            no metadata says it. Stores with families have it per family.
        schema_keys: the schema files that Spark names, oldest first. Empty if the store has one
            under the name that follows from its own.
        schema_paths: the same, as Spark names them: by their places when it wrote the metadata.
    """

    name: str
    prefix_columns: int | None
    schema_keys: tuple[str, ...]
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator at one batch.

    Attributes:
        id: its number in the query.
        name: Spark's name of the kind of operator; ``None`` before Spark 4.0.
        partitions: of each store.
        stores: at least one.
        variables: of ``transformWithState``; empty for all others.
        time_mode: of ``transformWithState``: ``NoTime``, ``ProcessingTime`` or ``EventTime``.
        output_mode: of ``transformWithState``: ``Append``, ``Update`` or ``Complete``.
        has_families: whether rows are in families of the store ``default``, each with a schema.
    """

    id: int
    name: str | None
    partitions: int
    stores: tuple[OperatorStore, ...]
    variables: tuple[StateVariable, ...] = ()
    time_mode: str | None = None
    output_mode: str | None = None
    has_families: bool = False


def read_operators(
    checkpoint: ObjectStore, batch: int, partitions: int | None, count: int | None = None
) -> tuple[Operator, ...]:
    """Return the operators of a query at a batch, by their numbers.

    Costs what ``read_operator`` does per operator, and two LISTs after the last one.

    Args:
        checkpoint: at the query's checkpoint location.
        batch: a committed batch.
        partitions: see ``read_operator``.
        count: of the operators: then nothing is listed after the last one. ``None``: not known.

    Raises:
        MissingError, CorruptError, FormatVersionError: see ``read_operator``.
    """
    operators: list[Operator] = []
    while len(operators) != count:
        found = read_operator(checkpoint, len(operators), batch, partitions)
        if found is None:
            break
        operators.append(found)
    return tuple(operators)


def read_operator(
    checkpoint: ObjectStore, operator: int, batch: int, partitions: int | None
) -> Operator | None:
    """Return an operator of a query at a batch; ``None`` if it has none of the number.

    Costs a LIST and a GET, or two LISTs without metadata. Only if nothing says how many partitions
    there are, which Spark 2.1 did not store, all files of the operator are listed.

    Args:
        checkpoint: at the query's checkpoint location.
        operator: its number.
        batch: a committed batch.
        partitions: what the offset log says, which counts more than an operator's metadata: Spark
            does not rewrite that of version 1 when it repartitions.

    Raises:
        MissingError: the metadata of the batch is gone.
        CorruptError: metadata cannot be read.
        FormatVersionError: metadata is of a newer version than 2.
    """
    key = metadata_key(checkpoint, operator, batch)
    if key is None:
        return _guess_operator(checkpoint, operator, partitions)
    data = checkpoint.get(key, max_bytes=_METADATA_BYTES_MAX).data
    try:
        found = _parse(data, partitions)
        if found.id != operator:
            raise CorruptError(f"the metadata is of operator {found.id}")
    except DataError as error:
        raise error.with_context(
            object_name=checkpoint.object_url(key),
            next_step="restore it from the bucket's versions or a backup",
        ) from error.__cause__
    return found


def metadata_key(checkpoint: ObjectStore, operator: int, batch: int) -> str | None:
    """Return the object with an operator's metadata at a batch; ``None``: it has none; one LIST.

    Raises:
        MissingError: that of the batch is gone, and later ones are there.
    """
    folder = f"state/{operator}/_metadata/"
    names = [info.key.removeprefix(folder) for info in checkpoint.list(folder)]
    batches = [batch_of(name.removeprefix("v2/")) for name in names if name.startswith("v2/")]
    newest = max((one for one in batches if one is not None and one <= batch), default=None)
    if newest is None and "metadata" not in names:
        if any(one is not None for one in batches):
            raise MissingError(
                f"the operator's metadata of batch {batch} is gone; later ones are there",
                object_name=checkpoint.object_url(f"{folder}v2"),
                next_step="choose a later batch",
            )
        return None
    return folder + ("metadata" if newest is None else f"v2/{newest}")


def _guess_operator(
    checkpoint: ObjectStore, operator: int, partitions: int | None
) -> Operator | None:
    """Return what the files of the first partition show; ``None`` if there is no file."""
    folder = f"state/{operator}/0/"
    keys = [info.key.removeprefix(folder) for info in checkpoint.list(folder)]
    if not keys:
        return None
    names = {store for store in map(_store_of, keys) if store is not None}
    if not names:
        raise MissingError(
            "the operator has no metadata, and its files do not show which stores it has",
            object_name=checkpoint.object_url(f"state/{operator}/_metadata/metadata"),
            next_step="restore it from the bucket's versions or a backup",
        )
    stores = tuple(OperatorStore(name or DEFAULT_STORE, None, ()) for name in sorted(names))
    return Operator(operator, None, partitions or _count_partitions(checkpoint, operator), stores)


def _count_partitions(checkpoint: ObjectStore, operator: int) -> int:
    """Return the number of an operator's folders: only Spark 2.1 says it nowhere else."""
    folder = f"state/{operator}/"
    keys = (info.key.removeprefix(folder) for info in checkpoint.list(folder))
    return len({name for name, _, _ in (key.partition("/") for key in keys) if name.isdecimal()})


def _store_of(key: str) -> str | None:
    """Return the store of which a file is a version, by the name of its folder; else ``None``."""
    folder, _, name = key.rpartition("/")
    if _STATE_FILE.fullmatch(name):
        return folder
    store, _, last = folder.rpartition("/")
    return store if isinstance(parse_name(f"{last}/{name}"), ChangelogName) else None


def _parse(data: bytes, partitions: int | None) -> Operator:
    """Return the operator that metadata of either version describes."""
    try:
        version, _, text = data.decode().partition("\n")
    except UnicodeDecodeError as error:
        raise CorruptError("the operator's metadata is not UTF-8") from error
    if version.strip() not in {"v1", "v2"}:
        if re.fullmatch(r"v[0-9]{1,9}\s*", version, re.ASCII):
            raise FormatVersionError(
                f"the operator's metadata has version {version.strip()}, newer than v2",
                next_step="use a release of Cairn that knows the Spark that wrote it",
            )
        raise CorruptError("the operator's metadata does not begin with its version")
    fields = parse_object(text, "the operator's metadata")
    info = as_object(fields.get("operatorInfo"), "operatorInfo")
    number = as_int(info.get("operatorId"), "operatorId", most=_INT_MAX)
    entries = [
        as_object(entry, "stateStoreInfo")
        for entry in as_list(fields.get("stateStoreInfo"), "stateStoreInfo")
    ]
    if not entries:
        raise CorruptError("the operator's metadata names no store")
    stored = [
        as_int(entry.get("numPartitions"), "numPartitions", least=1, most=_INT_MAX)
        for entry in entries
    ]
    if partitions is None and len(set(stored)) > 1:
        raise CorruptError("the operator's stores differ in their number of partitions")
    properties = _properties(fields.get("operatorPropertiesJson", ""))
    variables = tuple(
        StateVariable(
            as_text(one.get("stateName"), "stateName"),
            as_text(one.get("stateVariableType"), "stateVariableType"),
            as_flag(one.get("ttlEnabled"), "ttlEnabled"),
        )
        for one in (
            as_object(value, "stateVariables")
            for value in as_list(properties.get("stateVariables", []), "stateVariables")
        )
    )
    return Operator(
        id=number,
        name=as_text(info.get("operatorName"), "operatorName"),
        partitions=partitions or stored[0],
        stores=tuple(_store(entry, number) for entry in entries),
        variables=variables,
        time_mode=_optional_text(properties, "timeMode"),
        output_mode=_optional_text(properties, "outputMode"),
        has_families=bool(variables) or properties.get("useVirtualColumnFamilies") is True,
    )


def _store(entry: JsonObject, operator: int) -> OperatorStore:
    paths = as_list(entry.get("stateSchemaFilePaths", []), "stateSchemaFilePaths")
    if "stateSchemaFilePath" in entry:  # before the release of Spark 4.0
        paths = [*paths, entry["stateSchemaFilePath"]]
    names = [as_text(path, "a schema file") for path in paths]
    return OperatorStore(
        name=_folder_name(as_text(entry.get("storeName"), "storeName")),
        prefix_columns=as_int(entry.get("numColsPrefixKey"), "numColsPrefixKey", most=_INT_MAX),
        schema_keys=tuple(schema_key(name, operator) for name in names),
        schema_paths=tuple(names),
    )


def schema_key(path: str, operator: int) -> str:
    """Return the key of a schema file, which Spark names by its URI at the time of the writing.

    The checkpoint may have been moved or copied since.
    """
    *_, folder, store, name = ["", "", "", *path.split("/")]
    if folder != _SCHEMA_FOLDER:
        raise CorruptError("the path of a schema file is not one of Spark's")
    return f"state/{operator}/{folder}/{_folder_name(store)}/{_folder_name(name)}"


def _folder_name(name: str) -> str:
    """Return a name that becomes a part of a key, if it is one part."""
    try:
        check_key(name)
    except InternalError as error:
        raise CorruptError(f"{name[:80]!r} is no name of a folder or file of state") from error
    if "/" in name:
        raise CorruptError(f"{name[:80]!r} is no name of a folder or file of state")
    return name


def _properties(text: object) -> JsonObject:
    """Return the properties, which are JSON in a string of JSON."""
    json = as_text(text, "operatorPropertiesJson")
    return parse_object(json, "operatorPropertiesJson") if json else {}


def _optional_text(fields: JsonObject, name: str) -> str | None:
    return as_text(fields[name], name) if name in fields else None
