"""Credentials that maintenance renews."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from served import Served

from cairn.errors import AccessError


def test_keys_that_failed_once_are_used_at_the_next_maintenance(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service of credentials that is silent once must not leave the old keys for ever."""
    sent: list[str] = []

    def renew(settings: Mapping[str, str]) -> None:
        sent.append(settings["access_key"])
        if len(sent) == 1:
            raise AccessError("credentials are unavailable")

    monkeypatch.setattr(served.instance.state.checkpoint.objects, "renew", renew)

    def maintain() -> None:
        served.call("maintain", storage={"access_key": "new"}, snapshot=True, cleanup=True)

    with pytest.raises(AccessError):
        maintain()
    maintain()

    assert sent == ["new", "new"]


def test_maintenance_without_settings_keeps_the_keys(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shim without credentials sends none."""

    def renew(_: Mapping[str, str]) -> None:
        pytest.fail("there is nothing to renew")

    monkeypatch.setattr(served.instance.state.checkpoint.objects, "renew", renew)

    served.call("maintain", snapshot=True, cleanup=True)
