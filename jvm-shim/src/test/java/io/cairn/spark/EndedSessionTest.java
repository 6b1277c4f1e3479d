package io.cairn.spark;

import static io.cairn.spark.StoreFixture.NO_ID;
import static io.cairn.spark.StoreFixture.commit;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cairn.spark.protocol.RowPage;
import java.io.IOException;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Option;

/** Spark keeps a session until its task ends, which may open hundreds of them. */
class EndedSessionTest {
  private StoreFixture fixture;

  @BeforeEach
  void open() throws IOException {
    fixture = new StoreFixture();
  }

  @AfterEach
  void close() throws IOException {
    fixture.close();
  }

  @Test
  void anEndedSessionHasNoPage() throws Exception {
    CairnStateStoreProvider provider = fixture.provider();
    Option<String> id = commit(provider, 0, NO_ID, 1);
    StateStore store = provider.getStore(1, id, false, false);
    RowPage page = StoreFixture.session(store).channel.get(0, new byte[][] {{1}}, 1, 0);
    assertEquals(1, page.count);
    assertTrue(page.data.length > 0);

    store.abort();

    assertEquals(0, page.count);
    assertEquals(0, page.data.length);
    assertEquals(0, page.origin.length);
  }
}
