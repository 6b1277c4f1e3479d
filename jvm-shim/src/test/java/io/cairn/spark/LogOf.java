package io.cairn.spark;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.Property;

/** What a class logs, from the creation of this object until it is closed. */
public final class LogOf implements AutoCloseable {
  public final List<String> lines = new CopyOnWriteArrayList<>();
  private final Logger logger;
  private final Level levelBefore;
  private final AbstractAppender appender;

  /**
   * @param type the name of the class
   * @param level of the least important lines
   */
  public LogOf(String type, Level level) {
    appender =
        new AbstractAppender("LogOf " + type, null, null, false, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent event) {
            if (event.getLevel().isMoreSpecificThan(level)) {
              lines.add(event.getMessage().getFormattedMessage());
            }
          }
        };
    appender.start();
    logger = (Logger) LogManager.getLogger(type);
    levelBefore = logger.getLevel();
    Configurator.setLevel(logger, level); // without a configuration only errors are logged
    logger.addAppender(appender);
  }

  @Override
  public void close() {
    logger.removeAppender(appender);
    Configurator.setLevel(logger, levelBefore);
    appender.stop();
  }
}
