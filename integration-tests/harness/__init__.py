"""What the integration tests start and stop: S3 servers, Docker, proxies."""
