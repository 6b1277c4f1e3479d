"""Frames and control calls between shim and engine, as values and bytes; no I/O.

Layer: protocol.  Spec: docs/protocol.md.
"""
