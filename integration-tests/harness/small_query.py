"""A stateful query as a user has it, for programs that a test writes."""

QUERY = """
spark.range(100).selectExpr("id % 7 AS key").write.json("input")
rows = spark.readStream.schema("key long").json("input")
query = (
    rows.groupBy("key").count()
    .writeStream.format("noop")
    .outputMode("update")
    .option("checkpointLocation", "checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
assert query.lastProgress["stateOperators"][0]["numRowsTotal"] == 7
spark.stop()
"""
"""Needs a session ``spark``; uses the present folder, and stops the session."""
