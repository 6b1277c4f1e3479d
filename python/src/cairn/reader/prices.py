"""Prices: what an object store charges for bytes and for requests.

Layer: reader.  Spec: docs/reader.md#cost.

    prices := JSON {"name", "currency", "date", "source": text,
                    "storage_per_gib_month": number,
                    "per_1000_requests": {"put", "copy", "list", "get", "head", "delete": number}}

``source`` may be absent; so may kinds of requests that cost nothing.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Self

from cairn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_GIB = 1 << 30
_TEXTS = ("name", "currency", "date")
_STORAGE = "storage_per_gib_month"
_REQUESTS = "per_1000_requests"
_FILE = "prices.json"
# More than anything costs in any currency, and so little that sums of a month are finite.
_PRICE_END = 1e15
NEXT_STEP = "correct the file; docs/reader.md#cost has an example"


@dataclass(frozen=True, slots=True)
class Requests:
    """Numbers of requests, by kind. Numbers per batch are no whole ones."""

    put: float = 0
    copy: float = 0
    list: float = 0
    get: float = 0
    head: float = 0
    delete: float = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, one) + getattr(other, one) for one in KINDS))

    def times(self, factor: float) -> Requests:
        """Return ``factor`` times as many."""
        return Requests(*(getattr(self, one) * factor for one in KINDS))

    @property
    def count(self) -> float:
        """All together."""
        return float(sum(getattr(self, one) for one in KINDS))


KINDS = tuple(field.name for field in fields(Requests))


@dataclass(frozen=True, slots=True)
class Prices:
    """A table of prices.

    Attributes:
        name: of the service, storage class and region.
        currency: of all prices.
        date: since when, or when they were looked up.
        source: where; empty if the table does not say it.
        storage_per_gib_month: of 2^30 bytes for a month.
        per_1000_requests: by the kind of request.
    """

    name: str
    currency: str
    date: str
    source: str
    storage_per_gib_month: float
    per_1000_requests: Mapping[str, float]

    @classmethod
    def parse(cls, text: str | bytes, object_name: str) -> Self:
        """Return the table in a file.

        Raises:
            ConfigError: the file is not one; names all faults, and the nearest known field.
        """
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise _refused(f"it is not JSON: {problem}", object_name) from problem
        if not isinstance(table, dict):
            raise _refused("it is not a JSON object", object_name)
        requests = table.get(_REQUESTS)
        faults = [*_unknown(table, (*_TEXTS, "source", _STORAGE, _REQUESTS))]
        faults += [f"{name} is not a text" for name in _TEXTS if not _is_text(table.get(name))]
        if not _is_price(table.get(_STORAGE)):
            faults.append(f"{_STORAGE} is not a price")
        if isinstance(requests, dict):
            faults += _unknown(requests, KINDS)
            faults += [
                f"{_REQUESTS}.{kind} is not a price"
                for kind, price in requests.items()
                if kind in KINDS and not _is_price(price)
            ]
        else:
            faults.append(f"{_REQUESTS} is not an object")
        if faults or not isinstance(requests, dict):
            raise _refused("; ".join(faults), object_name)
        return cls(
            name=table["name"],
            currency=table["currency"],
            date=table["date"],
            source=str(table.get("source", "")),
            storage_per_gib_month=table[_STORAGE],
            per_1000_requests=requests,
        )

    def of_bytes(self, count: float) -> float:
        """Return the price of bytes for a month."""
        return count / _GIB * self.storage_per_gib_month

    def of_requests(self, requests: Requests) -> float:
        """Return the price of requests."""
        prices = self.per_1000_requests
        return float(sum(getattr(requests, kind) / 1000 * prices[kind] for kind in prices))


@cache
def default_prices() -> Prices:
    """Return the table that the package contains: an example."""
    return Prices.parse(resources.files("cairn").joinpath(_FILE).read_text("utf-8"), _FILE)


def _unknown(names: Mapping[Any, Any], known: Collection[str]) -> list[str]:
    return [
        f"{name} is not a field; the nearest one is "
        f"{difflib.get_close_matches(str(name), known, n=1, cutoff=0)[0]}"
        for name in names
        if name not in known
    ]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_price(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < _PRICE_END  # type: ignore[operator]


def _refused(text: str, object_name: str) -> ConfigError:
    return ConfigError(
        f"this is no table of prices: {text}", object_name=object_name, next_step=NEXT_STEP
    )
