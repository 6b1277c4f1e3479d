"""Rows in memory: sorting, runs, reads over them, tallies.

Layer: store.
"""
