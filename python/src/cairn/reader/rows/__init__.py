"""The bytes of rows -> Arrow, and a key -> its bytes; pure: no I/O.

Layer: reader.rows. ``decoder.py`` joins the others:

    stored.py          what a store hands over
    types.py           Spark's JSON of a schema -> types
    unsafe_row.py      UnsafeRows -> columns, over the numpy of spans.py
    row_writer.py      one row of columns -> an UnsafeRow
    layouts.py         keys: how their columns are split into rows
    ordered.py         the ordered columns of RangeScan keys
    lists.py           a list value -> its elements
    avro.py            rows in Spark's Avro encoding
    partition_hash.py  the partition of a key
"""
