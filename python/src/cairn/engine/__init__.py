"""``python -m cairn.engine``: a worker process beside an executor.

Layer: engine. Life of the process in ``__main__``; ``worker`` has the instances and says who
answers; ``owner`` is the loop, ``channel`` and ``frames`` the data plane, ``control`` the other.
"""
