"""Rows of a store, from bytes to Arrow columns."""
