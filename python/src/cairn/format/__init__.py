"""The names and bytes of every object: changelogs, manifests, SST names.

Layer: format (no I/O).  Spec: docs/checkpoint-format.md.
"""
