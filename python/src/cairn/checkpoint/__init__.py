"""Versions made durable, loaded, shortened and purged.

Layer: checkpoint; the one that knows objects and formats both. It never sees RocksDB.
Spec: docs/checkpoint-format.md, docs/semantics.md.
"""
