"""Op codes of a write: persisted in changelogs and sent in frames.

Layer: format.  Spec: docs/checkpoint-format.md#changelog.
"""

# DO NOT RENUMBER: these are in every changelog and frame.
OP_PUT = 1
OP_DELETE = 2
OP_APPEND = 3
OP_DROP_CF = 4
