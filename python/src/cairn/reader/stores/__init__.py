"""The rows of one store at one version, as bytes: of Cairn's stores and of Spark's.

Layer: reader.
"""
