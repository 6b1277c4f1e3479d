"""Reading the state of a query from its checkpoint, without Spark.

Layer: reader.
"""
