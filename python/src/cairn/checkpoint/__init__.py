"""Commit, load, snapshot and purge of versions in the object store.

Layer: checkpoint; the only layer that knows both objects and formats. It does not use RocksDB.
Spec: docs/checkpoint-format.md, docs/semantics.md.
"""
