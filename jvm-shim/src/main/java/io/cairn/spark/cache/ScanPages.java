package io.cairn.spark.cache;

import io.cairn.spark.protocol.PendingRows;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.ScanRequest;
import java.util.Arrays;

/**
 * The pages of one scan or refill. The engine reads the next page while the rows of this one are
 * used, so there are at most two pages.
 */
final class ScanPages {
  private final PageSource source;
  private PendingRows ahead;

  /** The key after which the page that was requested ahead begins. */
  private byte[] aheadFrom;

  ScanPages(PageSource source) {
    this.source = source;
  }

  /** Reads the page of a request; it stays valid. */
  RowPage read(ScanRequest request) {
    RowPage page = null;
    if (ahead != null && !request.isInclusive() && Arrays.equals(aheadFrom, request.from())) {
      page = source.take(ahead);
    }
    ahead = null;
    return page == null ? source.read(request).copy() : page;
  }

  /**
   * Requests the page after this one, for the next {@link #read} that begins there.
   *
   * @param request has the family, the end and the limits
   */
  void readAhead(RowPage page, ScanRequest request) {
    if (page.more) {
      aheadFrom = page.keyBytes(page.count - 1);
      ahead =
          source.start(
              new ScanRequest(
                  request.family(),
                  aheadFrom,
                  false,
                  request.to(),
                  request.limitRows(),
                  request.limitBytes()));
    }
  }

  /** Forgets the page that was requested ahead: it is outdated, or nobody needs it. */
  void drop() {
    ahead = null;
  }
}
