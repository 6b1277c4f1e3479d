"""Frames and calls between shim and engine; no I/O.  Spec: docs/protocol.md."""
