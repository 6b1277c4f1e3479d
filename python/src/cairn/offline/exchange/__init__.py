"""Exchange: the rows of a batch as Parquet files, and rows of such files as the rows of a family.

Layer: offline.exchange (above move and reader; ``cairn.export`` and ``cairn.import_state``).
"""
