"""How a version becomes the current one: its lineage, the changelogs, ways around damage.

Layer: store.
"""
