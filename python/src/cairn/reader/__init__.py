"""The state reader: the state of a query from its checkpoint, without Spark."""
