"""S3, through boto3; nothing else imports boto3.

Layer: storage.
"""
