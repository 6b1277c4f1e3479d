/**
 * What Spark's planner gets from Cairn: rules and physical operators. The operators below a
 * stateful operator find its store in {@link io.cairn.spark.session.TaskSessions}.
 *
 * <p>Rules and operators are Scala, because javac cannot extend Spark's plan classes; what they do
 * with rows is Java. Spec: docs/adr/0017-prefetch-below-stateful-operators.md.
 */
package io.cairn.spark.extension;
