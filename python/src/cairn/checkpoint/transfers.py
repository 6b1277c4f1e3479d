"""TransferResources: what the stores of a worker share to download and upload objects.

Layer: checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cairn.checkpoint.sst_cache import SstCache


@dataclass(frozen=True)
class TransferResources:
    """See the module.

    Attributes:
        cache: the SSTs on the local disk.
        downloads: threads; they must not call methods of ``Recovery``.
        uploads: threads; they must not call ``SnapshotUploader.upload``.
        upload_threads: how many they are.
        clock: source of time limits and dates.
        entropy: generates the names of objects.
    """

    cache: SstCache
    downloads: Executor
    uploads: Executor
    upload_threads: int = 4
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY
