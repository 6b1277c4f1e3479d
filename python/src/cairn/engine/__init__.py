"""The program of a worker: a process beside an executor.

Layer: engine. ``__main__`` starts and ends the process, ``worker`` has the instances. ``control``
serves the control calls. ``event_loop`` runs the data channel: ``channel`` has the connections,
``frame_service`` serves their frames. ``directories`` has the worker's place on the local disk.
"""

import os

# pyarrow reads this once, at its import. Arrow's own pool would keep the memory of a large commit,
# some 30 MB that no bound counts; the C library returns it to the system.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
