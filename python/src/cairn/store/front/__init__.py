"""What the worker calls: one provider object's store, and its change feed.

Layer: store.
"""
