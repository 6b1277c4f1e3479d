"""Credentials of a role that the service STS gives for a limited time, renewed before they expire.

Layer: storage. botocore assumes roles of a profile only; a job names its role in its settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, NoCredentialsError

from cairn.storage.s3.errors import RoleRequestError

if TYPE_CHECKING:
    from botocore.config import Config
    from botocore.session import Session

    from cairn.storage.s3.settings import S3Settings


def assume_role(session: Session, role_arn: str, settings: S3Settings, config: Config) -> None:
    """Make a session use the credentials of a role. No request is sent yet.

    Args:
        session: has the credentials of the caller.
        role_arn: the role.
        settings: with those of the role.
        config: proxy, time limits and attempts of the requests.

    Raises:
        NoCredentialsError: the session has no credentials of its own.
    """
    source = session.get_credentials()
    if source is None:
        raise NoCredentialsError
    extra = {
        "RoleSessionName": settings.role_session_name,
        "DurationSeconds": settings.role_duration_s,
        "ExternalId": settings.role_external_id,
        "Policy": settings.role_policy,
    }

    def create_client(service: str, **keys: Any) -> Any:  # noqa: ANN401 - botocore has no types
        return session.create_client(
            service,
            endpoint_url=settings.sts_endpoint_url,
            region_name=settings.sts_region or settings.region or "us-east-1",
            verify=settings.ca_bundle,
            config=config,
            **keys,
        )

    def fetch() -> Any:  # noqa: ANN401 - botocore has no types
        try:
            return fetcher.fetch_credentials()
        except BotoCoreError as error:
            raise RoleRequestError(endpoint=settings.sts_endpoint_url or "STS") from error

    fetcher = AssumeRoleCredentialFetcher(
        client_creator=create_client,
        source_credentials=source,
        role_arn=role_arn,
        extra_args={name: value for name, value in extra.items() if value is not None},
    )
    # botocore has no public way to set credentials that renew themselves.
    renewing: Any = session
    renewing._credentials = DeferredRefreshableCredentials(  # noqa: SLF001
        refresh_using=fetch, method="assume-role"
    )
