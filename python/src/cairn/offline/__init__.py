"""Work on the checkpoint of a query that is stopped: repair, and what Cairn has left behind.

Layer: offline (above reader and engine, below cli). Each piece of work has a plan, which changes
nothing; carrying it out keeps drivers away (``hold``) and records what it did (``record``).
"""
