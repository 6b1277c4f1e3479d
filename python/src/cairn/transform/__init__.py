"""The worker's side of `transformWithState` in bulk: loads nothing of the engine.

Spec: docs/adr/0050-state-of-python-in-bulk.md.
"""
