"""Credentials that maintenance renews."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from served import Served

from cairn.engine import worker
from cairn.errors import AccessError, UnknownInstanceError
from cairn.storage.base import ObjectStore
from cairn.storage.open import open_store


def test_keys_whose_client_failed_once_are_used_at_the_next_maintenance(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service of credentials that is silent once must not leave the old keys for ever."""
    made: list[str] = []

    def open_or_fail(url: str, settings: Mapping[str, str], _: object) -> ObjectStore:
        made.append(settings["access_key"])
        if len(made) == 1:
            raise AccessError("credentials are unavailable")
        return open_store(url, {})

    monkeypatch.setattr(worker, "open_store", open_or_fail)

    def maintain() -> None:
        served.call("maintain", storage={"access_key": "new"}, snapshot=True, cleanup=True)

    with pytest.raises(AccessError):
        maintain()
    maintain()
    maintain()

    assert made == ["new", "new"]


def test_maintenance_does_not_open_a_store_again_that_is_closed_meanwhile(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would close it: its S3 client stayed as long as the worker."""

    def closed_meanwhile(opened: Any, **changes: Any) -> Any:  # noqa: ANN401 - of any class
        served.call("close_instance")
        return replace(opened, **changes)

    monkeypatch.setattr(worker, "replace", closed_meanwhile)

    with pytest.raises(UnknownInstanceError):
        served.call("maintain", storage={"access_key": "new"}, snapshot=True, cleanup=True)

    with pytest.raises(UnknownInstanceError):
        served.call("maintain", snapshot=True, cleanup=True)
