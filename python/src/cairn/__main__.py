"""The command `cairn` as `python -m cairn`, where its script is not on PATH.

Layer: cli.
"""

from cairn.cli.main import main

main(prog_name="cairn")
