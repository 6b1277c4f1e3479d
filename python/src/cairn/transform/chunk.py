"""What a function of `apply_in_arrow_with_state` may know of its chunk besides the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Chunk:
    """Facts of a chunk: the third argument of a function of ``apply_in_arrow_with_state``.

    ``has_timed_out`` says whether the chunk has the keys whose timeout has passed, without rows.
    ``processing_time_ms`` is the time of the batch's trigger, in milliseconds since 1970: the same
    for all its chunks. ``watermark_ms`` is the event-time watermark of the batch; ``None`` if the
    input has none. ``key_of_row`` is an ``Int32Array`` with one number per row: that of its key,
    which is the number of the key's row in ``state``. Rows of a key follow one another.
    """

    has_timed_out: bool
    processing_time_ms: int
    watermark_ms: int | None
    key_of_row: pa.Int32Array
