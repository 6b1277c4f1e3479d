"""Object storage: local files, S3, and memory for tests. ``base`` has the contract.

Layer: storage.
"""
