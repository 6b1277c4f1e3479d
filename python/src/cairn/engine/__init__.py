"""``python -m cairn.engine``: a worker process beside an executor.

Layer: engine. Life of the process in ``__main__``; ``worker`` has the instances and says who
answers; ``owner`` is the loop, ``channel`` and ``frames`` the data plane, ``control`` the other.
"""

import os

# Before pyarrow is imported, which reads it once: Arrow's own pool keeps what a large commit used,
# some 30 MB that no bound of ours sees; the C library gives it back.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
