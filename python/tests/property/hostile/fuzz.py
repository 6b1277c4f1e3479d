"""Reads many mutated inputs and reports crashes, hangs, memory over the bound, and wrong errors.

    python fuzz.py --inputs 100000 --seed 1            all targets, by their weights
    python fuzz.py --target frames --seed 1 --only 17  one input, in this process

Each target runs in a process of its own, so that a crash is seen and attributed. A seed repeats its
inputs. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

_TESTS = Path(__file__).resolve().parents[2]
for _path in (
    _TESTS / "property" / "engine",
    _TESTS.parent / "src",
    _TESTS.parents[1] / "integration-tests",
):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

HANG_S = 30.0
"""A single input takes milliseconds; a loaded machine may stop a process for seconds."""
MEMORY_BYTES = 256 << 20
"""Bound of what one input may add to a process; inputs have up to some 100 KB."""
_ADDRESS_BYTES = 3 << 30
_FINDINGS_MAX = 20
_INDEX = struct.Struct("<q")


@dataclass(frozen=True)
class Finding:
    """An input that ended in a way that is not promised."""

    target: str
    index: int
    kind: str
    detail: str


def _reset_peak() -> None:
    """Let ``_peak_bytes`` count from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    """Return the largest resident size since the last reset: memory that is freed again, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _input(seed: int, target: str, index: int) -> Random:
    return Random(f"{seed}/{target}/{index}")


def _serve(name: str, seed: int, start: int, end: int, folder: Path) -> None:
    """Run a target's inputs; write the index of the present one, print findings as JSON."""
    import pyarrow as pa  # noqa: PLC0415 - in the child alone
    from targets import TARGETS  # noqa: PLC0415 - as above: it imports the engine

    from cairn.errors import BusyError  # noqa: PLC0415 - as above
    from cairn.memory import resident_bytes  # noqa: PLC0415 - as above

    os.chdir(folder)
    (folder / "target").mkdir()
    target = next(one for one in TARGETS if one.name == name)(folder / "target")
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (present + _ADDRESS_BYTES, resource.RLIM_INFINITY))
    with (folder / "index").open("r+b") as file, mmap.mmap(file.fileno(), _INDEX.size) as shown:
        target.run(_input(seed, name, -1))  # imports and pools
        pa.default_memory_pool().release_unused()  # the next inputs would use it unseen
        before = resident_bytes()
        for index in range(start, end):
            shown[:] = _INDEX.pack(index)
            kind, detail = "", ""
            _reset_peak()
            try:
                target.run(_input(seed, name, index))
            except (MemoryError, BusyError):
                kind, detail = "memory", traceback.format_exc()
            except Exception:  # noqa: BLE001 - every other exception is a finding
                kind, detail = "error", traceback.format_exc()
            grown = _peak_bytes() - before
            if not kind and grown > MEMORY_BYTES:
                kind, detail = "memory", f"at its peak {grown >> 20} MiB more than before"
                before = max(before, resident_bytes())  # what is kept is reported once
            if kind:
                _print(json.dumps([index, kind, detail[-3000:]]))
        shown[:] = _INDEX.pack(end)
    target.close()
    sys.stdout.flush()
    os._exit(0)


def fuzz_target(name: str, seed: int, count: int, hang_s: float = HANG_S) -> list[Finding]:
    """Run ``count`` inputs of a target in child processes; start again after a crash or hang."""
    findings: list[Finding] = []
    start = 0
    while start < count and len(findings) < _FINDINGS_MAX:
        with tempfile.TemporaryDirectory(prefix="cairn-fuzz-") as folder:
            start, found = _run_child(name, seed, (start, count), Path(folder), hang_s)
            findings += found
    return findings


def _run_child(
    name: str, seed: int, inputs: tuple[int, int], folder: Path, hang_s: float
) -> tuple[int, list[Finding]]:
    """Run one child; return the index at which the next one starts, and what this one found."""
    findings: list[Finding] = []
    index_file, output = folder / "index", folder / "output"
    index_file.write_bytes(_INDEX.pack(inputs[0]))
    command = [sys.executable, __file__, "--child", str(folder), "--target", name]
    command += ["--seed", str(seed), "--first", str(inputs[0]), "--inputs", str(inputs[1])]
    with output.open("wb") as out, (folder / "errors").open("wb") as errors:
        child = subprocess.Popen(command, stdout=out, stderr=errors)  # noqa: S603 - this program
        ending = _await(child, index_file, hang_s)
    for line in output.read_text("utf-8", "replace").splitlines():
        index, kind, detail = json.loads(line)
        findings.append(Finding(name, index, kind, detail))
    if ending is None:
        return inputs[1], findings
    (reached,) = _INDEX.unpack(index_file.read_bytes())
    printed = (folder / "errors").read_text("utf-8", "replace")[-2000:]
    findings.append(Finding(name, reached, ending, printed))
    return int(reached) + 1, findings


def _await(child: subprocess.Popen[bytes], index_file: Path, hang_s: float) -> str | None:
    """Wait for the child's end; return how it failed, or ``None``."""
    seen, since = b"", time.monotonic()
    while child.poll() is None:
        time.sleep(0.05)
        index = index_file.read_bytes()
        if index != seen:
            seen, since = index, time.monotonic()
        elif time.monotonic() - since > hang_s:
            child.send_signal(signal.SIGABRT)  # faulthandler prints the threads
            child.wait()
            return "hang"
    code = child.returncode
    return None if code == 0 else f"crash ({code})"


def shares_of(count: int) -> dict[str, int]:
    """Return the number of inputs of each target: ``count`` in all, or ten of each if more."""
    from targets import TARGETS  # noqa: PLC0415 - it imports the engine

    total = sum(target.weight for target in TARGETS)
    shares = {one.name: max(10, count * one.weight // total) for one in TARGETS if one.weight}
    shares[max(shares, key=shares.__getitem__)] += max(0, count - sum(shares.values()))
    return shares


def fuzz(seed: int, count: int, processes: int = 2) -> list[Finding]:
    """Run ``count`` inputs over all targets, by their weights; at least ten per target."""
    with ThreadPoolExecutor(processes) as pool:
        results = [
            (name, inputs, pool.submit(fuzz_target, name, seed, inputs))
            for name, inputs in shares_of(count).items()
        ]
        found: list[Finding] = []
        for name, inputs, result in results:
            found += result.result()
            _print(f"{name}: {inputs} inputs, {len(result.result())} findings")
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target")
    parser.add_argument("--only", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--child", type=Path)
    options = parser.parse_args()
    if options.child is not None:
        import faulthandler  # noqa: PLC0415 - of the child alone

        faulthandler.enable()
        _serve(options.target, options.seed, options.first, options.inputs, options.child)
    if options.only is not None:
        from targets import TARGETS  # noqa: PLC0415 - it imports the engine

        with tempfile.TemporaryDirectory(prefix="cairn-fuzz-") as folder:
            target = next(one for one in TARGETS if one.name == options.target)(Path(folder))
            target.run(_input(options.seed, options.target, options.only))
            target.close()
        return 0
    if options.target:
        found = fuzz_target(options.target, options.seed, options.inputs)
    else:
        found = fuzz(options.seed, options.inputs)
    for finding in found:
        _print(f"\n{finding.target} --only {finding.index}: {finding.kind}\n{finding.detail}")
    _print(f"seed {options.seed}: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
