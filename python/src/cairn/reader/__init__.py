"""The reader: state of a query's checkpoint as Arrow data, without Spark and without a JVM."""
