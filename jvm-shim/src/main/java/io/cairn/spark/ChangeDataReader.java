package io.cairn.spark;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.codec.ColumnFamily;
import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.codec.RowCodec;
import io.cairn.spark.engine.SessionChannel;
import io.cairn.spark.minor.MinorChangeReader;
import io.cairn.spark.protocol.ChangePage;
import io.cairn.spark.protocol.RowPage;
import io.cairn.spark.protocol.WriteBlock;
import io.cairn.spark.session.StoreSession;
import java.util.ArrayList;
import java.util.List;
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

  private final StoreSession session;
  private final SessionChannel channel;
  private final ColumnFamily family;
  private final int familyId;
  private final List<Version> versions = new ArrayList<>();
  private final ByteSpan keySpan = new ByteSpan();
  private final ByteSpan valueSpan = new ByteSpan();
  private int versionIndex;
  private ChangePage page;
  private int row;
  private long pageStart;
  private Iterator<UnsafeRow> values;
  private Enumeration.Value valueType;
  private UnsafeRow valueKey;

  private record Version(long number, String checkpointId) {}

  /** REQUIRES: a session at {@code endVersion}; {@link #close} releases it. */
  ChangeDataReader(
      StoreSession session,
      long startVersion,
      long endVersion,
      String familyName,
      String endCheckpointId) {
    super(
        session.store.id,
        session.store.id.storeCheckpointLocation(),
        startVersion,
        endVersion,
        session.store.storeConf,
        familyName);
    this.session = session;
    this.channel = session.channel;
    FamilyInfo info = session.present().get(familyName);
    familyId = info == null ? -1 : info.id();
    family = session.families.get(familyName);
    session.enter("read changes");
    try {
      channel
          .changedVersions(startVersion, endVersion, endCheckpointId)
          .forEach(one -> versions.add(new Version(one.get(0).asLong(), one.get(1).asText())));
    } finally {
      session.leave();
    }
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
    if (family == null || versionIndex == versions.size()) {
      return false;
    }
    Version version = versions.get(versionIndex);
    session.enter("read on");
    try {
      page = channel.changes(version.number, version.checkpointId, pageStart, PAGE_ROWS);
    } finally {
      session.leave();
    }
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
    return new Tuple4<>(type, key, value, versions.get(versionIndex).number - 1);
  }

  @Override
  public String changelogSuffix() {
    return "arrow";
  }

  @Override
  public void close() {
    session.release();
  }
}
