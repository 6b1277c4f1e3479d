"""The reader: the state of a query from its checkpoint, without Spark and without a JVM.

Layer: reader. Rooms, which import only downwards:

    stores   the bytes of one store at one version: Cairn's, and those of Spark's providers
    rows     the bytes of rows -> Arrow
    spark    Spark's metadata files, parsed

The engine does not import the reader, and the reader imports no engine. It writes nothing.
"""
