"""The operator that Cairn adds to Spark: a function over the rows and the state of many keys.

Layer: cli's side (nothing below imports it); what does the work is imported by the first call.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, GroupedData
    from pyspark.sql.types import StructType

_EXTENSION = "io.cairn.spark.CairnExtensions"
_MINOR = "4.3"


def apply_in_arrow_with_state(
    grouped: GroupedData,
    func: Callable[..., Any],
    output_schema: StructType | str,
    state_schema: StructType | str,
    mode: str,
    timeout: str,
) -> DataFrame:
    """Apply a function to the rows and the state of many keys at once, as Arrow tables.

    It is ``applyInPandasWithState`` for chunks of keys in place of single keys; both store the same
    state, so that a query may go on with the other one. It needs Spark 4.3 and
    ``cairn.spark_conf()``, which sets ``spark.sql.extensions``.

    ``func(rows, state)`` returns ``(output, new_state)``, tables of pyarrow or of a library that
    exports Arrow streams, such as Polars. ``rows`` has all rows of all keys of the chunk. ``state``
    has one row per key: the key, the fields of ``state_schema``, ``exists``, which is false where
    the key has no state, and ``timeout_ms``, unless ``timeout`` is ``NoTimeout``. ``new_state``
    must have one row for each row of ``state``, in any order: what the state will be. ``output``
    may be ``None``. A third parameter of ``func`` gets a ``cairn.Chunk``. Keys whose timeout has
    passed come in chunks of their own, without rows.

    Args:
        grouped: a streaming frame, grouped by its columns.
        func: the function; it has two or three parameters without default.
        output_schema: of ``output``, a ``StructType`` or as text.
        state_schema: of the state of a key.
        mode: ``append`` or ``update``.
        timeout: ``NoTimeout``, ``ProcessingTimeTimeout`` or ``EventTimeTimeout``.

    Raises:
        ConfigError: the session lacks Cairn's extension, the frame is grouped by nothing, the
            function has another number of parameters, or two columns of ``rows``, ``state`` or
            ``output`` would have the same name.
        SparkVersionError: this Spark is not 4.3.
    """
    # Spark is imported by those who use it.
    from pyspark import __version__ as spark_version  # noqa: PLC0415
    from pyspark.sql.types import StructType, _parse_datatype_string  # noqa: PLC0415

    from cairn.errors import ConfigError, SparkVersionError  # noqa: PLC0415
    from cairn.spark_minor import require_supported  # noqa: PLC0415
    from cairn.transform.arrow_state import ArrowStateFunction  # noqa: PLC0415

    if require_supported(spark_version) != _MINOR:
        raise SparkVersionError(
            f"apply_in_arrow_with_state needs Spark {_MINOR}, this is {spark_version}",
            next_step="use applyInPandasWithState, which stores the same state",
        )
    if _EXTENSION not in str(grouped.session.conf.get("spark.sql.extensions", "")):
        raise ConfigError(
            f"apply_in_arrow_with_state needs {_EXTENSION} in spark.sql.extensions",
            next_step="create the session with the settings of cairn.spark_conf()",
        )
    output, state = (
        _parse_datatype_string(one) if isinstance(one, str) else one
        for one in (output_schema, state_schema)
    )
    if not isinstance(output, StructType) or not isinstance(state, StructType):
        raise ConfigError(
            "the schemas of output and state are structs",
            next_step="write them as columns, such as 'key bigint, count bigint'",
        )
    made: Any = ArrowStateFunction(
        func, takes_chunk=takes_chunk(func), output=output, state=state, timeout=timeout
    )
    frame = grouped.applyInPandasWithState(made, output, state, mode, timeout)
    _check_names(frame, output, state)
    return frame


def takes_chunk(func: Callable[..., Any]) -> bool:
    """Return whether a function of ``apply_in_arrow_with_state`` takes a ``Chunk``, too.

    Raises:
        ConfigError: it has neither two nor three positional parameters without default.
    """
    from cairn.errors import ConfigError  # noqa: PLC0415

    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(
        one.kind in positional and one.default is one.empty
        for one in inspect.signature(func).parameters.values()
    )
    if count not in (2, 3):
        raise ConfigError(
            f"the function has {count} positional parameters without default",
            next_step="give it two, rows and state, or a third one for a cairn.Chunk",
        )
    return count == 3  # noqa: PLR2004 - rows, state, chunk


def _check_names(frame: DataFrame, output: StructType, state: StructType) -> None:
    """Refuse tables with two columns of one name."""
    from cairn.errors import ConfigError  # noqa: PLC0415
    from cairn.transform.state_table import OWN_COLUMNS  # noqa: PLC0415

    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark's frames do so
    keys, rows = (
        [attributes.apply(place).name() for place in range(attributes.size())]
        for attributes in (plan.groupingAttributes(), plan.child().output())
    )
    if not keys:
        raise ConfigError(
            "the frame is grouped by no column", next_step="group it by one column or more"
        )
    for what, names in (
        ("rows", rows),
        ("state", [*keys, *state.names, *OWN_COLUMNS]),
        ("output", output.names),
    ):
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise ConfigError(
                f"the table {what} would have two columns named {twice[0]!r}",
                next_step="rename one; Spark stores keys and fields of the state without their "
                "names, so that a query may go on with other names",
            )
