package io.cairn.spark.settings;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.Property;

/** The warnings that a class logs, from the creation of this object until it is closed. */
final class LogOf implements AutoCloseable {
  final List<String> warnings = new CopyOnWriteArrayList<>();
  private final Logger logger;
  private final Level levelBefore;
  private final AbstractAppender appender;

  LogOf(Class<?> type) {
    appender =
        new AbstractAppender("LogOf " + type.getName(), null, null, false, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent event) {
            if (event.getLevel() == Level.WARN) {
              warnings.add(event.getMessage().getFormattedMessage());
            }
          }
        };
    appender.start();
    logger = (Logger) LogManager.getLogger(type);
    levelBefore = logger.getLevel();
    Configurator.setLevel(logger, Level.WARN); // without a configuration only errors are logged
    logger.addAppender(appender);
  }

  @Override
  public void close() {
    logger.removeAppender(appender);
    Configurator.setLevel(logger, levelBefore);
    appender.stop();
  }
}
