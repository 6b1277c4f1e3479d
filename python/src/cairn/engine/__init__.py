"""``python -m cairn.engine``: a worker process beside an executor.

Layer: engine. ``__main__`` is the life of the process, ``worker`` has the instances. ``control``
serves the control calls. ``event_loop`` runs the data channel: ``channel`` has the connections,
``frame_service`` serves their frames. ``directories`` is the place on the local disk.
"""

import os

# Before pyarrow is imported, which reads it once. Arrow's own pool keeps what a large commit used,
# some 30 MB that no bound counts; the C library returns it to the system.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
