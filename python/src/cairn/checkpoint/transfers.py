"""TransferResources: what the stores of a worker share to download and upload objects.

Layer: checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.storage.progress import Activity

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cairn.checkpoint.sst_cache import SstCache

UPLOAD_THREADS = 4
"""SSTs that a worker uploads at the same time, a file per thread.

One per task slot that a worker serves by default. AWS counts on 85 MB/s per connection: four of
each worker fill the network of an executor. More threads on a slow link only share it.
"""
DOWNLOAD_THREADS = 8
"""Objects that a worker downloads at the same time.

Twice as many, because a query waits for its load, and because the changelogs of a replay are small:
each costs a round trip rather than bandwidth.
"""


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
        download_threads: the number of threads in ``downloads``.
        activity: shows that the worker moves: a wait for it is not in vain.
        upload_activity: counts the files, and parts of large ones, that the worker has uploaded.
    """

    cache: SstCache
    downloads: Executor
    uploads: Executor
    upload_threads: int = UPLOAD_THREADS
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY
    download_threads: int = DOWNLOAD_THREADS
    activity: Activity = field(default_factory=Activity)
    upload_activity: Activity = field(default_factory=Activity)

    def uploaded(self) -> None:
        """Note that a file or a part of one was uploaded."""
        self.activity.moved()
        self.upload_activity.moved()
