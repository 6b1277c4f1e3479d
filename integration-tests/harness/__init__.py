"""Servers, processes, queries and sessions of the integration tests."""
