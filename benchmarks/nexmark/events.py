"""The events of Nexmark as expressions over their numbers: event n is the same in every run.

Of each 50 consecutive events the first is a person, the next 3 are auctions, the other 46 bids.
Event n happens n / 10,000 s after 2015-07-15 (UTC), cut to milliseconds. Proportions, sizes, ids
and skew are those of the suite's generator in Java with its default configuration; its random
numbers are not: here they are hashes of n.

    numbers := a data frame, batch or stream, with a column `value`: n
    person  := id, name, emailAddress, creditCard, city, state, dateTime, extra
    auction := id, itemName, description, initialBid, reserve, dateTime, expires, seller, category,
               extra
    bid     := auction, bidder, price, channel, url, dateTime, extra
"""

from __future__ import annotations

from pyspark.sql import DataFrame

RATE_PER_S = 10_000
BASE_TIME_MS = 1_436_918_400_000
PERSONS, AUCTIONS, EPOCH = 1, 3, 50  # of each 50 events; the rest are bids
FIRST_ID = 1000  # of persons and of auctions
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PEOPLE, IN_FLIGHT_AUCTIONS, ID_LEAD = 1000, 100, 10
# With probability 1 - 1/ratio the hot one; it changes after 100 ids.
HOT_AUCTION_RATIO, HOT_SELLER_RATIO, HOT_BIDDER_RATIO, HOT_BATCH = 2, 4, 4, 100
CHANNELS, HOT_CHANNELS = 10_000, ("Google", "Facebook", "Baidu", "Apple")
WATERMARK_DELAY = "4 seconds"

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond"),
    *("Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter"),
    "Walter",
)
_LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"),
)


def _letters(count: int) -> str:
    """Return letters in no visible order, as the suite's generator draws its texts from."""
    number, made = 1, []
    for _ in range(count):
        number = number * 48_271 % 0x7FFFFFFF
        made.append(chr(ord("a") + number % 26))
    return "".join(made)


_LETTERS = _letters(2048)

_TIME_MS = f"({BASE_TIME_MS} + value * 1000 div {RATE_PER_S})"
_TIME = f"timestamp_millis({_TIME_MS})"
_PLACE = f"(value % {EPOCH})"
# The number of the newest person and auction so far; ids are these + FIRST_ID.
_PERSON = f"(value div {EPOCH} * {PERSONS})"
_AUCTION = (
    f"(CASE WHEN {_PLACE} < {PERSONS} THEN (value div {EPOCH} - 1) * {AUCTIONS} + {AUCTIONS - 1} "
    f"ELSE value div {EPOCH} * {AUCTIONS} + least({_PLACE} - {PERSONS}, {AUCTIONS - 1}) END)"
)
# How long 100 auctions take, in ms; the mean time for which an auction is open.
_HORIZON_MS = IN_FLIGHT_AUCTIONS * EPOCH // AUCTIONS * 1000 // RATE_PER_S


def _random(bound: int | str, salt: str) -> str:
    """Return a whole number from 0 to below ``bound``, by the event's number and the salt."""
    return f"pmod(xxhash64(value, '{salt}'), {bound})"


def _one_of(texts: tuple[str, ...], salt: str) -> str:
    choices = ", ".join(f"'{text}'" for text in texts)
    return f"element_at(array({choices}), cast({_random(len(texts), salt)} AS int) + 1)"


def _text(least: int, bound: int | str, salt: str) -> str:
    """Return letters: at least ``least``, and up to ``bound`` - 1 more."""
    start = _random(len(_LETTERS) // 2, salt + " start")
    length = f"{least} + {_random(bound, salt)}"
    return f"substr('{_LETTERS}', cast(1 + {start} AS int), cast({length} AS int))"


def _extra(size: int, salt: str) -> str:
    """Return what pads an event to its size: 80 to 120 % of ``size`` letters."""
    delta = round(size * 0.2)
    return _text(size - delta, 2 * delta, salt)


def _price(salt: str) -> str:
    unit = f"({_random(1 << 53, salt)} / {1 << 53}.0D)"
    return f"cast(round(pow(10.0D, {unit} * 6.0D) * 100.0D) AS bigint)"


def _person_near(salt: str) -> str:
    """Return an active person's number, or one of the next ten, who are still to come."""
    active = f"least({_PERSON} + 1, {ACTIVE_PEOPLE})"
    chosen = _random(f"({active} + {ID_LEAD})", salt)
    return f"({_PERSON} + 1 - {active} + {chosen})"


def _auction_near(salt: str) -> str:
    oldest = f"greatest({_AUCTION} - {IN_FLIGHT_AUCTIONS}, 0)"
    chosen = _random(f"({_AUCTION} - {oldest} + 1 + {ID_LEAD})", salt)
    return f"({oldest} + {chosen})"


def _hot_or(ratio: int, newest: str, other: str, salt: str, more: int = 0) -> str:
    hot = f"({newest} div {HOT_BATCH} * {HOT_BATCH} + {more})"
    return f"(CASE WHEN {_random(ratio, salt)} > 0 THEN {hot} ELSE {other} END)"


PERSON = {
    "id": f"{_PERSON} + {FIRST_ID}",
    "name": f"{_one_of(_FIRST_NAMES, 'first')} || ' ' || {_one_of(_LAST_NAMES, 'last')}",
    "emailAddress": f"{_text(3, 4, 'mail')} || '@' || {_text(3, 2, 'host')} || '.com'",
    "creditCard": " || ' ' || ".join(
        f"lpad(cast({_random(10_000, f'card {part}')} AS string), 4, '0')" for part in range(4)
    ),
    "city": _one_of(_CITIES, "city"),
    "state": _one_of(_STATES, "state"),
    "dateTime": _TIME,
    "extra": _extra(200 - 61, "person extra"),
}
AUCTION = {
    "id": f"{_AUCTION} + {FIRST_ID}",
    "itemName": _text(3, 17, "item"),
    "description": _text(3, 97, "description"),
    "initialBid": _price("initial"),
    "reserve": f"{_price('initial')} + {_price('reserve')}",
    "dateTime": _TIME,
    "expires": f"timestamp_millis({_TIME_MS} + 1 + {_random(2 * _HORIZON_MS, 'length')})",
    "seller": _hot_or(HOT_SELLER_RATIO, _PERSON, _person_near("seller"), "hot seller")
    + f" + {FIRST_ID}",
    "category": f"{FIRST_CATEGORY} + {_random(CATEGORIES, 'category')}",
    "extra": _extra(500 - 8 - 11 - 51 - 40, "auction extra"),
}
_IS_HOT_CHANNEL = f"{_random(2, 'hot channel')} > 0"
_CHANNEL = _random(CHANNELS, "channel")
_URL = "'https://www.nexmark.com/' || {0} || '/item.htm?query=1'"
BID = {
    "auction": _hot_or(HOT_AUCTION_RATIO, _AUCTION, _auction_near("auction"), "hot auction")
    + f" + {FIRST_ID}",
    # The suite's generator adds the first id twice, too.
    "bidder": _hot_or(HOT_BIDDER_RATIO, _PERSON, _person_near("bidder"), "hot bidder", more=1)
    + f" + {2 * FIRST_ID}",
    "price": _price("price"),
    "channel": f"CASE WHEN {_IS_HOT_CHANNEL} THEN {_one_of(HOT_CHANNELS, 'which')} "
    f"ELSE 'channel-' || {_CHANNEL} END",
    "url": f"CASE WHEN {_IS_HOT_CHANNEL} "
    f"THEN {_URL.format('lower(' + _one_of(HOT_CHANNELS, 'which') + ')')} "
    f"ELSE {_URL.format(f'hex(xxhash64({_CHANNEL}))')} || CASE WHEN pmod(xxhash64({_CHANNEL}), 10)"
    f" > 0 THEN '&channel_id=' || abs(hash({_CHANNEL})) ELSE '' END END",
    "dateTime": _TIME,
    "extra": _extra(100 - 32, "bid extra"),
}


def create_views(numbers: DataFrame, *, has_watermark: bool = False) -> None:
    """Make the events the temporary views `person`, `auction` and `bid` of its session.

    Args:
        numbers: numbers of events in a column `value`, batch or stream.
        has_watermark: the views have a watermark, 4 s behind the newest event.
    """
    for name, columns, first, end in (
        ("person", PERSON, 0, PERSONS),
        ("auction", AUCTION, PERSONS, PERSONS + AUCTIONS),
        ("bid", BID, PERSONS + AUCTIONS, EPOCH),
    ):
        events = numbers.where(f"{_PLACE} >= {first} AND {_PLACE} < {end}")
        view = events.selectExpr(*(f"{text} AS {column}" for column, text in columns.items()))
        if has_watermark:
            view = view.withWatermark("dateTime", WATERMARK_DELAY)
        view.createOrReplaceTempView(name)
