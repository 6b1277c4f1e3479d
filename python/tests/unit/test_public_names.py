"""The names that users import from `cairn`."""

from types import ModuleType

import cairn
from cairn import errors


def test_the_package_shows_its_public_names_and_no_others() -> None:
    """A name that is importable by chance is one that users come to depend on."""
    shown = {
        name
        for name, value in vars(cairn).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert shown | {"__version__"} == set(cairn.__all__)


def test_one_clause_catches_every_error_and_one_those_of_the_set_up() -> None:
    """A job that wants to report a missing jar must not import a private module for it."""
    assert cairn.CairnError is errors.CairnError
    assert issubclass(cairn.ConfigError, cairn.CairnError)
