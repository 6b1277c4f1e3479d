package io.cairn.spark.s3a;

import software.amazon.awssdk.core.interceptor.Context;
import software.amazon.awssdk.core.interceptor.ExecutionAttributes;
import software.amazon.awssdk.core.interceptor.ExecutionInterceptor;
import software.amazon.awssdk.http.SdkHttpRequest;

/**
 * Removes {@code Expect: 100-continue}, with which each PUT waits for an interim answer: one more
 * round trip. The AWS SDK adds the header whatever {@code fs.s3a.connection.expect.continue} says.
 *
 * <p>Created by Hadoop, for {@code fs.s3a.audit.execution.interceptors}.
 */
public final class OneRoundTrip implements ExecutionInterceptor {
  @Override
  public SdkHttpRequest modifyHttpRequest(
      Context.ModifyHttpRequest context, ExecutionAttributes attributes) {
    return context.httpRequest().copy(request -> request.removeHeader("Expect"));
  }
}
