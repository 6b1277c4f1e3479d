package io.cairn.spark.session;

import io.cairn.spark.codec.FamilyInfo;
import io.cairn.spark.codec.TypeText;
import io.cairn.spark.errors.CairnException;
import io.cairn.spark.errors.ErrorKind;

/** Refuses declarations of column families that do not fit what a version has. */
final class FamilyCheck {
  private FamilyCheck() {}

  /**
   * Refuses a changed declaration of a family that has keys, and another kind of values.
   *
   * <p>The family {@code default} may change in every way while it is empty: operators with other
   * families never use it, and Spark's state reader declares it as the family that it reads.
   *
   * @param isOnlyFamily whether the version has no other
   */
  static void requireReadable(
      String store,
      StoreVersion version,
      FamilyInfo stored,
      FamilyInfo declared,
      boolean isOnlyFamily) {
    boolean isDefault = stored.name().equals(ColumnFamilies.DEFAULT);
    // Without a count (trackTotalNumberOfRows is false) the family may have keys.
    Long keys = version.counts().get(stored.id());
    boolean hasKeys = keys == null ? !isDefault || isOnlyFamily : keys != 0;
    boolean isOtherKind = stored.isMulti() != declared.isMulti() && (hasKeys || !isDefault);
    if (isOtherKind || hasKeys && !TypeText.sameKeys(stored, declared)) {
      throw mismatch(
          store,
          version,
          "column family '"
              + stored.name()
              + "' has keys of "
              + keyText(stored)
              + ", but the query declares "
              + keyText(declared),
          "cast the keys to the stored types, run the query that wrote this checkpoint, or start"
              + " the changed query with a new checkpointLocation; no setting converts stored"
              + " keys");
    }
    if (hasKeys && !isSameEncoding(stored, declared)) {
      throw mismatch(
          store,
          version,
          "the rows of column family '"
              + stored.name()
              + "' are stored as "
              + encodingText(stored)
              + ", but the settings say "
              + encodingText(declared),
          "set spark.sql.streaming.stateStore.encodingFormat and rowChecksum.enabled as the"
              + " query had them that wrote this checkpoint");
    }
  }

  static boolean isSameEncoding(FamilyInfo stored, FamilyInfo declared) {
    return stored.types().encoding().equals(declared.types().encoding());
  }

  private static String encodingText(FamilyInfo family) {
    String encoding = family.types().encoding();
    return (encoding.startsWith("avro:") ? "avro" : "unsaferow")
        + (encoding.endsWith("rowChecksum:") ? " with row checksums" : " without row checksums");
  }

  /** Refuses a family that was created in this session with other types: it may have rows. */
  static void requireSameTypes(
      String store, StoreVersion version, FamilyInfo created, FamilyInfo declared) {
    boolean isSame =
        created.isMulti() == declared.isMulti()
            && TypeText.sameKeys(created, declared)
            && created.types().value().equals(declared.types().value());
    if (!isSame) {
      throw mismatch(
          store,
          version,
          "column family '"
              + created.name()
              + "' was created in this batch with "
              + typeText(created)
              + ", and again with "
              + typeText(declared),
          "give each state variable its own name, or the same types everywhere");
    }
  }

  private static CairnException mismatch(
      String store, StoreVersion version, String message, String nextStep) {
    return CairnException.of(ErrorKind.INVALID, "CAIRN_SCHEMA_MISMATCH", message, nextStep)
        .at(store, version.version());
  }

  private static String typeText(FamilyInfo family) {
    return "keys of " + keyText(family) + " and values of " + family.types().value();
  }

  private static String keyText(FamilyInfo family) {
    return family.types().key() + (family.isMulti() ? " with lists" : "");
  }
}
