/** Extensions of Hadoop's S3 client: the only classes that need the AWS SDK. */
package io.cairn.spark.s3a;
