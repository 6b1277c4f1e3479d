package io.cairn.spark;

import io.cairn.spark.session.StoreSession;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Rows that are read or decoded one by one after the call that returned them, under the lock. */
final class LockedRows extends AbstractIterator<UnsafeRow> {
  private final StoreSession session;
  private final Iterator<UnsafeRow> rows;

  LockedRows(StoreSession session, Iterator<UnsafeRow> rows) {
    this.session = session;
    this.rows = rows;
  }

  @Override
  public boolean hasNext() {
    return rows.hasNext();
  }

  @Override
  public UnsafeRow next() {
    session.enter("read on");
    try {
      return rows.next();
    } finally {
      session.leave();
    }
  }
}
