"""Stores as the engine serves them: instances, sessions, reads, commits, snapshots.

Layer: store. It imports neither sockets nor Py4J.
"""
