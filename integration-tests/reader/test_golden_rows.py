"""The checkpoints of Spark's own tests, read whole: where Spark's source reads them, both agree.

Spark 2.1 to 4.0 wrote them. What the source of the Spark under test cannot read is listed here with
its error. The reader returns these rows all the same, or says why it does not.
"""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / ".build" / "golden-checkpoints"
VERSION = "checkpoint-version-"

NO_SCHEMA = "STDS_FAILED_TO_READ_STATE_SCHEMA"
"""Spark stores schemas since 3.1; those of its tests of 4.0 have the form of no release."""
NO_METADATA = "requirement failed"
"""The source needs the metadata that Spark 4.0 and later store, to list the stores of a join."""
WRONG_SCHEMA = "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE"
"""Before 3.4 the schema of `dropDuplicates` has columns that its values have not."""
NO_BATCH = "STDS_COMMITTED_BATCH_UNAVAILABLE"
"""Spark 2.1 had no commit log."""

REFUSED = {
    "2.1.0": NO_BATCH,
    "2.3.1-flatMapGroupsWithState-state-format-1": NO_SCHEMA,
    "2.3.1-streaming-aggregate-state-format-1": NO_SCHEMA,
    "2.3.1-without-commit-log-metadata": NO_SCHEMA,
    "2.4.0-streaming-join": NO_METADATA,
    "2.4.5-for-compatibility-test-common-functions": NO_SCHEMA,
    "2.4.5-for-compatibility-test-deduplicate": NO_SCHEMA,
    "2.4.5-for-compatibility-test-statistical-functions": NO_SCHEMA,
    "2.4.5-for-compatibility-test-sum-decimal": NO_SCHEMA,
    "3.0.0-streaming-statestore-codec": NO_SCHEMA,
    "3.2.0-deduplication-with-repartition": WRONG_SCHEMA,
    "3.3.0-streaming-deduplication": WRONG_SCHEMA,
    "4.0.0-tws-avro": NO_SCHEMA,
    "4.0.0-tws-unsaferow": NO_SCHEMA,
}
