<<<<<<< HEAD
"""The reader: state of a query's checkpoint as Arrow data, without Spark and without a JVM."""
=======
"""Reading the state of a query from its checkpoint, without Spark.

Layer: reader.
"""
>>>>>>> w-lead
