"""``python -m cairn.engine``: a worker process beside an executor.

Layer: engine. Entry and life of the process in ``__main__``; ``worker`` has the instances and
answers; ``owner`` is the loop, ``channel`` and ``frames`` the data plane, ``control`` the control plane.
"""
