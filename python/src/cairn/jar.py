"""The path of the shim's jar: inside the wheel, or as Gradle built it in a checkout.

Layer: public surface.
"""

from pathlib import Path

from cairn.errors import ConfigError

_PACKAGED = Path(__file__).parent / "jars" / "cairn-shim.jar"
# parents[3] of python/src/cairn/jar.py is the root of a checkout.
_BUILT = Path(__file__).resolve().parents[3] / "jvm-shim" / "build" / "libs" / "cairn-shim.jar"


def jar_path() -> Path:
    """Return the absolute path of the shim's jar, for ``spark.jars``.

    The jar that was built in a checkout has precedence: the copy inside the package may be older.

    Raises:
        ConfigError: this installation has no jar.
    """
    for jar in (_BUILT, _PACKAGED):
        if jar.is_file():
            return jar.resolve()
    raise ConfigError(
        f"no shim jar in this installation: neither {_PACKAGED} nor {_BUILT} exists",
        next_step="install the wheel cairn-state, or run `make shim` in a checkout",
    )
