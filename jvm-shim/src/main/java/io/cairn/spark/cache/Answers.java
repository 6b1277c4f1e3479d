package io.cairn.spark.cache;

import io.cairn.spark.bytes.ByteSpan;
import io.cairn.spark.cache.memory.EntryMap;
import io.cairn.spark.protocol.RowPage;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The replies that a session keeps for its reads, because the committed cache cannot have them:
 * rows of ranges, pages of single reads in the order of their keys, and rows that the session has
 * spilled.
 *
 * <p>INVARIANT: an answer is what the engine would answer now. A spill changes that, so {@link
 * #noteSpill} marks what it makes outdated, in replies and in requests that are still on their way.
 *
 * <p>Memory: the last {@link #MAX_REPLIES} of each family, whose size the engine bounds; no bound
 * on the cache counts them. Threads: as the session.
 */
final class Answers {
  /** The rows of one request are read while those of the next one come; either may take two. */
  private static final int MAX_REPLIES = 4;

  /** The newest first. */
  private final Map<CachedFamily, Deque<Answer>> replies = new HashMap<>();

  private final List<Answer> awaited = new ArrayList<>();
  private long missedRanges;

  /** Begins to note what spills make outdated in a request, which was just sent. */
  void await(Answer requested) {
    awaited.add(requested);
  }

  /** Ends what {@link #await} began. */
  void endWait(Answer requested) {
    awaited.remove(requested);
  }

  /** Keeps a reply, which stays valid, and drops the oldest one of the family. */
  void add(Answer answer, RowPage reply) {
    answer.receive(reply);
    Deque<Answer> last = replies.computeIfAbsent(answer.family, any -> new ArrayDeque<>());
    last.addFirst(answer);
    if (last.size() > MAX_REPLIES) {
      last.removeLast();
    }
  }

  /** Finds the row of a key, or that there is none; null: it must be requested. */
  Answer.Rows find(CachedFamily family, ByteSpan key) {
    Deque<Answer> last = replies.get(family);
    if (last == null) {
      return null;
    }
    for (Answer answer : last) {
      Answer.Rows found = answer.find(key);
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  /** Finds the rows of a range for its scan; null: they must be requested. */
  Answer.Rows slice(CachedFamily family, byte[] from, byte[] to) {
    Answer.Rows found = lookUp(family, from, to);
    missedRanges += found == null && replies.containsKey(family) ? 1 : 0;
    return found;
  }

  /** Whether the rows of a range are here. */
  boolean has(CachedFamily family, byte[] from, byte[] to) {
    return lookUp(family, from, to) != null;
  }

  private Answer.Rows lookUp(CachedFamily family, byte[] from, byte[] to) {
    Deque<Answer> last = from == null ? null : replies.get(family);
    if (last == null) {
      return null;
    }
    for (Answer answer : last) {
      Answer.Rows found = answer.slice(from, to);
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  /** Notes that writes of a family are about to be spilled. */
  void noteSpill(CachedFamily family, EntryMap written) {
    for (Answer answer : awaited) {
      if (answer.family == family) {
        answer.noteSpill(written);
      }
    }
    for (Answer answer : replies.getOrDefault(family, new ArrayDeque<>())) {
      answer.noteSpill(written);
    }
  }

  /** Scans that requested their rows although rows of their family were requested ahead. */
  long missedRanges() {
    return missedRanges;
  }

  /** Forgets all rows; the session has ended. */
  void clear() {
    replies.clear();
    awaited.clear();
  }
}
