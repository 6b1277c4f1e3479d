"""Where objects live: local files, S3, and memory for tests. ``base`` has the promises."""
