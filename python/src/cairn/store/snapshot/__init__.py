"""Snapshots, the purge after them, and the commits that wait for one.

Layer: store.
"""
