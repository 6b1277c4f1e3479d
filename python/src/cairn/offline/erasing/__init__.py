"""Erasing: the rows of a key out of every store, family and retained version.

Layer: offline.erasing (above move and reader; ``cairn.erase``).
"""
