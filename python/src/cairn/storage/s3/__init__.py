"""S3 through boto3, the only importer of it."""
