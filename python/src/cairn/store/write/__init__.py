"""The writes of a session, from its frames to the commit.

Layer: store.
"""
