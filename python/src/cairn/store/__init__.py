"""Stores as the engine serves them: instances, sessions, reads, commits, snapshots.

Layer: store. It knows nothing of sockets or of Py4J.
"""
