"""What is known of one store: its version, the chain of its snapshots, the run in progress.

Layer: store.
"""
