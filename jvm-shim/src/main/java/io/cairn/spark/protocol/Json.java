package io.cairn.spark.protocol;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cairn.spark.errors.CairnException;
import java.io.IOException;

/** JSON of control calls and commits, their answers, and ERROR frames. */
public final class Json {
  public static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  /** The object as text, in UTF-8. */
  public static byte[] bytes(ObjectNode object) {
    try {
      return MAPPER.writeValueAsBytes(object);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException("[CAIRN_INTERNAL] an object that cannot be JSON", e);
    }
  }

  /** Reads the text that {@code bytes} begins with; throws if the engine did not send JSON. */
  public static JsonNode read(byte[] bytes, int length) {
    try {
      return MAPPER.readTree(bytes, 0, length);
    } catch (IOException e) {
      throw CairnException.protocol("the engine sent a reply that is not JSON");
    }
  }

  /** An empty object. */
  public static ObjectNode object() {
    return MAPPER.createObjectNode();
  }
}
