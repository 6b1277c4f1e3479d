"""Moves: the state of a query in another form, in other partitions, or at another place.

Layer: offline.move (above reader and engine; the commands of ``cairn.offline`` use it).
"""
