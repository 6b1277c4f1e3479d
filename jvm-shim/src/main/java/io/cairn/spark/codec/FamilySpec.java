package io.cairn.spark.codec;

import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.types.StructType;

/**
 * A column family as Spark declares it.
 *
 * @param isMulti whether a key has a list of values
 * @param isInternal whether Spark uses it internally and does not count its keys
 */
public record FamilySpec(
    String name,
    StructType keySchema,
    StructType valueSchema,
    KeyStateEncoderSpec keySpec,
    boolean isMulti,
    boolean isInternal) {}
