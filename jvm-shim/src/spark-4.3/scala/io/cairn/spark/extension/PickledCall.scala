package io.cairn.spark.extension

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8

/** The command of a Python worker: a pickle of a call, whose result is the pickled function. */
private[extension] object PickledCall {

  /** The call of `load` of a module of Cairn's with the pickle of a function and further facts. */
  def load(module: String, users: Array[Byte], facts: Array[Byte]): Array[Byte] = {
    val pickle = new ByteArrayOutputStream
    pickle.write(Array(0x80, 3).map(_.toByte)) // protocol 3
    pickle.write(s"c$module\nload\n".getBytes(UTF_8)) // GLOBAL
    for (bytes <- Seq(users, facts)) { // BINBYTES
      pickle.write('B')
      for (shift <- Seq(0, 8, 16, 24)) pickle.write(bytes.length >>> shift)
      pickle.write(bytes)
    }
    pickle.write(Array(0x86, 'R', '.').map(_.toByte)) // TUPLE2, REDUCE, STOP
    pickle.toByteArray
  }
}
