"""Queries whose form is the same in Spark and in Flink, and their runs in Flink's SQL."""
