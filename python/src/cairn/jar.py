"""The path of the shim's jar: inside the wheel, or as Gradle built it in a checkout.

Layer: public surface.
"""

from pathlib import Path

from cairn.errors import ConfigError
from cairn.spark_minor import installed_minor, require_supported

_PACKAGE = Path(__file__).resolve().parent
PACKAGED = _PACKAGE / "jars"
# A checkout has the package at python/src/cairn. An installed one may be right below the root.
BUILT = _PACKAGE.parent.parent.parent / "jvm-shim" / "build"


def jar_path(spark: str | None = None) -> Path:
    """Return the absolute path of the shim's jar, for ``spark.jars``.

    The jar that was built in a checkout has precedence: the copy inside the package may be older.

    Args:
        spark: version of Spark, e.g. ``4.3`` or ``4.3.0``; None: that of the installed Spark.

    Raises:
        ConfigError: no Spark is installed, or this installation lacks the jar.
        SparkVersionError: this release does not support that version of Spark.
    """
    minor = require_supported(spark) if spark else installed_minor()
    name = f"cairn-shim-{minor}.jar"
    jars = (BUILT / minor / "libs" / name, PACKAGED / name)
    for jar in jars:
        if jar.is_file():
            return jar.resolve()
    raise ConfigError(
        f"no shim jar for Spark {minor} in this installation: none of "
        f"{' and '.join(map(str, jars))} exists",
        next_step="install the wheel cairn-state, or run `make shims` in a checkout",
    )
