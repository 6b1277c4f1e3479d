"""Nexmark for Structured Streaming: events, queries, and their runs under three providers.

The workload is that of the Flink suite (github.com/nexmark/nexmark): the same events, the same
queries. `events` makes the events in Spark's expressions, `queries` and `processors` have the
queries, `__main__` measures them, `measured_query` is one such measurement.
"""
