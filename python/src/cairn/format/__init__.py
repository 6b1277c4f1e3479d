"""The bytes of every object: names, changelogs, manifests.

Layer: format (no I/O).  Spec: docs/checkpoint-format.md.
"""
