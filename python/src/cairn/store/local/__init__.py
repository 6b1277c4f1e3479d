"""The local state: the database, and the committed versions that it does not have yet.

Layer: store.
"""
