package io.cairn.tests

import java.util.{ArrayList, List => JavaList}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.avro.SchemaConverters
import org.apache.spark.sql.catalyst.CatalystTypeConverters
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{
  BoundReference, Murmur3Hash, UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.execution.streaming.state.{
  AvroStateEncoder, InMemoryStateSchemaProvider, KeyStateEncoderSpec, RangeKeyScanStateEncoderSpec,
  RocksDBDataEncoder, RocksDBStateEncoder, StateSchemaMetadata, StateSchemaMetadataKey,
  StateSchemaMetadataValue, UnsafeRowDataEncoder}
import org.apache.spark.sql.types.{DataType, StructType}

/** Rows of state as Spark itself writes them; called through Py4J. */
object StateRows {
  /**
   * Writes rows anew, also what is nested in them: as external values of Spark, and from these.
   *
   * @param rows UnsafeRows
   */
  def write(schema: String, rows: JavaList[Array[Byte]]): JavaList[UnsafeRow] = {
    val of = struct(schema)
    val toScala = CatalystTypeConverters.createToScalaConverter(of)
    val toCatalyst = CatalystTypeConverters.createToCatalystConverter(of)
    val project = UnsafeProjection.create(of)
    listOf(rows.asScala.map { bytes =>
      val row = new UnsafeRow(of.length)
      row.pointTo(bytes, bytes.length)
      project(toCatalyst(toScala(row)).asInstanceOf[InternalRow]).copy()
    })
  }

  def bytes(rows: JavaList[UnsafeRow]): JavaList[Array[Byte]] = listOf(rows.asScala.map(_.getBytes))

  /** The hash of all columns of each row. */
  def hashes(schema: String, rows: JavaList[UnsafeRow]): JavaList[Int] = {
    val columns = struct(schema).zipWithIndex.map { case (field, index) =>
      BoundReference(index, field.dataType, nullable = true)
    }
    val hash = Murmur3Hash(columns, 42)
    listOf(rows.asScala.map(row => hash.eval(row).asInstanceOf[Int]))
  }

  def struct(schema: String): StructType = DataType.fromJson(schema).asInstanceOf[StructType]

  def ordered(key: StructType, ordinals: JavaList[Int]): KeyStateEncoderSpec =
    RangeKeyScanStateEncoderSpec(key, ordinals.asScala.toSeq)

  def unsafeRows(spec: KeyStateEncoderSpec, value: StructType): RocksDBDataEncoder =
    new UnsafeRowDataEncoder(spec, value)

  /** Rows in Avro, of a family `default`. */
  def avro(
      spec: KeyStateEncoderSpec, key: StructType, value: StructType, keyId: Int, valueId: Int
  ): RocksDBDataEncoder = {
    def known(schema: StructType, id: Int, isKey: Boolean) =
      StateSchemaMetadataKey("default", id.toShort, isKey) ->
        StateSchemaMetadataValue(schema, SchemaConverters.toAvroTypeWithDefaults(schema))
    val schemas = StateSchemaMetadata(
      Map(known(key, keyId, isKey = true), known(value, valueId, isKey = false)))
    new AvroStateEncoder(spec, value, Some(new InMemoryStateSchemaProvider(schemas)), "default")
  }

  def keys(
      data: RocksDBDataEncoder, spec: KeyStateEncoderSpec, rows: JavaList[UnsafeRow]
  ): JavaList[Array[Byte]] = {
    val encoder = RocksDBStateEncoder.getKeyEncoder(data, spec, false)
    listOf(rows.asScala.map(row => encoder.encodeKey(row).clone()))
  }

  def values(data: RocksDBDataEncoder, rows: JavaList[UnsafeRow]): JavaList[Array[Byte]] =
    listOf(rows.asScala.map(row => data.encodeValue(row).clone()))

  private def listOf[A](items: Iterable[A]): JavaList[A] = new ArrayList(items.asJavaCollection)
}
