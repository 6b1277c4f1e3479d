"""What the stores of a worker share: threads, memory, time slices.

Layer: store.
"""
