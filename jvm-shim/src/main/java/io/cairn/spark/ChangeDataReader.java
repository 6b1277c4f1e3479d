package io.cairn.spark;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.RowCodec;
import io.cairn.spark.minor.MinorChangeReader;
import io.cairn.spark.protocol.ChangePage;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;
import io.cairn.spark.session.ChangeSession;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RecordType;
import scala.Enumeration;
import scala.Tuple4;
import scala.collection.Iterator;

/**
 * The changes of some versions, for the state data source's {@code readChangeFeed}: record type,
 * key, value, batch.
 *
 * <p>At most one change per key and version, as in the changelog. A list has one record per value:
 * the first one replaces the list if the changelog does, the others append to it.
 */
final class ChangeDataReader extends MinorChangeReader {
  private static final int PAGE_ROWS = 4096;

  private final ChangeSession session;

  /** Null: it is not declared, so it has no changes. */
  private final ColumnFamily family;

  private final int familyId;
  private final ByteSpan keySpan = new ByteSpan();
  private final ByteSpan valueSpan = new ByteSpan();
  private int versionIndex;
  private ChangePage page;
  private int row;
  private long pageStart;
  private Iterator<UnsafeRow> values;
  private Enumeration.Value valueType;
  private UnsafeRow valueKey;

  /**
   * @param session {@link #close} closes it
   * @param family null: it is not declared
   */
  ChangeDataReader(
      ChangeSession session,
      ColumnFamily family,
      long startVersion,
      long endVersion,
      String familyName) {
    super(
        session.store.id,
        session.store.id.storeCheckpointLocation(),
        startVersion,
        endVersion,
        session.store.storeConf,
        familyName);
    this.session = session;
    this.family = family;
    familyId = family == null ? -1 : session.idOf(family);
  }

  @Override
  public Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object> getNext() {
    while (true) {
      if (values != null && values.hasNext()) {
        Enumeration.Value type = valueType;
        valueType = RecordType.MERGE_RECORD();
        return record(type, valueKey, values.next());
      }
      values = null;
      if (page == null && !nextPage()) {
        finished_$eq(true);
        return null;
      }
      RowPage rows = page.rows();
      if (row == rows.count) {
        endPage();
      } else if (page.families()[row] != (short) familyId
          || page.ops()[row] == WriteBlock.DROP_CF) {
        row++;
      } else {
        int at = row++;
        RowCodec codec = family.codec();
        rows.key(at, keySpan);
        UnsafeRow key = codec.decodeKey(keySpan).copy();
        if (page.ops()[at] == WriteBlock.DELETE) {
          return record(RecordType.DELETE_RECORD(), key, null);
        }
        valueType =
            page.ops()[at] == WriteBlock.APPEND
                ? RecordType.MERGE_RECORD()
                : RecordType.PUT_RECORD();
        rows.value(at, valueSpan);
        if (!family.spec().isMulti()) {
          return record(valueType, key, codec.decodeValue(keySpan, valueSpan).copy());
        }
        valueKey = key;
        values = codec.decodeValues(keySpan, valueSpan);
      }
    }
  }

  private boolean nextPage() {
    if (family == null || versionIndex == session.versions.size()) {
      return false;
    }
    page = session.page(session.versions.get(versionIndex), pageStart, PAGE_ROWS);
    row = 0;
    return true;
  }

  private void endPage() {
    pageStart += page.rows().count;
    if (!page.rows().more) {
      versionIndex++;
      pageStart = 0;
    }
    page = null;
  }

  private Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object> record(
      Enumeration.Value type, UnsafeRow key, UnsafeRow value) {
    return new Tuple4<>(type, key, value, session.versions.get(versionIndex).number() - 1);
  }

  @Override
  public String changelogSuffix() {
    return "arrow";
  }

  @Override
  public void close() {
    page = null;
    values = null;
    if (family != null) {
      family.codec().clear();
    }
    session.close();
  }
}
