package io.cairn.spark.cache;

import io.cairn.spark.protocol.EngineSource;
import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;

/** Reads pages of committed and spilled rows from the engine of the open session. */
final class PageSource {
  private final CachedFamilies families;

  /** Null without session. */
  private EngineSource source;

  PageSource(CachedFamilies families) {
    this.families = families;
  }

  /** Sets the engine of the session; null at its end. */
  void use(EngineSource newSource) {
    source = newSource;
  }

  /** Reads a page at the cached version; it stays valid. */
  RowPage read(ScanRequest request) {
    return checked(source.scan(request, families.version()));
  }

  /** Requests a page at the cached version and returns without it. */
  PendingRows start(ScanRequest request) {
    return source.startScan(request, families.version());
  }

  /** Requests the rows of ranges and returns without the reply. */
  PendingRows startRanges(Answer.Ranges ranges) {
    return source.startRanges(
        ranges.family.id, ranges.from, ranges.to, ranges.from.length, families.version());
  }

  /** Waits for a page, which stays valid; null: there is no reply. */
  RowPage take(PendingRows pending) {
    RowPage rows = pending.take();
    return rows == null ? null : checked(rows);
  }

  private RowPage checked(RowPage rows) {
    families.noteApplied(source.appliedThrough());
    if (rows.count == 0 && rows.more) {
      throw new IllegalStateException(
          "[CAIRN_INTERNAL] the engine sent an empty page and says that more follows");
    }
    return rows;
  }
}
