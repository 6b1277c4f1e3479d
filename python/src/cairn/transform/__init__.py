"""The worker's side of `transformWithState` in bulk: loads nothing of the engine.

Spec: docs/adr/0048-state-of-python-in-bulk.md.
"""
