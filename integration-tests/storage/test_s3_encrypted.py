"""A query whose bucket is reached with TLS, in a role, with SSE-KMS: by Spark and by the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.events import Events
from harness.job import Query, continue_after_a_kill
from harness.s3 import S3Bucket
from harness.s3_servers import temporary_keys, trust_options
from harness.spark import CAIRN_CONF, JVM_OPTIONS, SUBJECT, s3a_conf

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("driver")]
FILES = 5
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"


def test_a_query_continues_on_an_encrypted_bucket_in_a_role(
    role_bucket: S3Bucket, tmp_path: Path
) -> None:
    """Where a policy demands encryption, neither Spark's entries nor the state may be without."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    settings = role_bucket.settings
    role = {"RoleArn": settings["role_arn"], "Policy": settings["role_policy"]}
    keys = temporary_keys(settings, role)
    conf = {
        **s3a_conf({**settings, **keys}),
        "fs.s3a.session.token": keys["session_token"],
        "fs.s3a.connection.ssl.enabled": "true",
        "fs.s3a.aws.credentials.provider": TEMPORARY,
        "fs.s3a.encryption.algorithm": "SSE-KMS",
        "fs.s3a.encryption.key": settings["sse_kms_key"],
        CAIRN_CONF + "s3.caBundle": settings["ca_bundle"],
    }
    query = Query("distinct", events, f"{role_bucket.url}/query", SUBJECT, 2, conf)
    options = f"{JVM_OPTIONS} {trust_options(settings['ca_bundle'], tmp_path)}"

    job = continue_after_a_kill(query, tmp_path, conf={"spark.driver.extraJavaOptions": options})

    assert job.all_rows() == query.batch_rows()
    client = role_bucket.endpoint.client()
    objects = client.list_objects_v2(Bucket=role_bucket.name)["Contents"]
    heads = [client.head_object(Bucket=role_bucket.name, Key=item["Key"]) for item in objects]
    assert len(heads) > 2 * FILES
    assert {head.get("ServerSideEncryption") for head in heads} == {"aws:kms"}
    client.close()
