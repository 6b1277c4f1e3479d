"""All file systems of Hadoop's, which the shim serves: ``store`` has the objects.

Layer: storage.
"""
