"""Makes examples/sample-checkpoint: the state of a small shop, for the documents and the tests.

    python examples/sample/make.py [FOLDER]

The query joins orders with their payments (operator 0), and keeps per customer what was paid, the
last orders, and the amounts by product (operator 1, `transformWithState`). The input is the same in
every run: eight batches. The checkpoint that the repository has was made once; the documents and
the tests have its rows.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import cairn

FOLDER = Path(__file__).resolve().parents[1] / "sample-checkpoint"
BATCHES = 8
ORDERS_PER_BATCH = 4
# Some buy more often.
BUYERS = ("ann", "bob", "cid", "ann", "dora", "bob", "ann")
PRODUCTS = ("book", "lamp", "tea")
# 2026-03-01 09:00 UTC.
START_S = 1_772_355_600
BATCH_S = 300
ORDER = "id long, customer string, product string, amount decimal(8,2), ordered_at timestamp"
PAYMENT = "order_id long, paid_at timestamp"
RESULT = "customer string, orders long, paid decimal(12,2)"


class Customers(StatefulProcessor):
    """Keeps what each customer has paid for."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.total = handle.getValueState("total", "orders long, paid decimal(12,2)")
        self.last = handle.getListState("last_orders", "id long, amount decimal(8,2)")
        self.products = handle.getMapState(
            "by_product", "product string", "orders long, paid decimal(12,2)"
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: object,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """Add the paid orders of a batch."""
        orders, paid = self.total.get() or (0, Decimal(0))
        last = [(order, amount) for order, amount in self.last.get()]
        for row in sorted(rows, key=lambda one: one.id):
            orders, paid = orders + 1, paid + row.amount
            last.append((row.id, row.amount))
            of_product = self.products.getValue((row.product,)) or (0, Decimal(0))
            self.products.updateValue(
                (row.product,), (of_product[0] + 1, of_product[1] + row.amount)
            )
        self.total.update((orders, paid))
        self.last.put(last[-3:])
        yield Row(customer=key[0], orders=orders, paid=paid)

    def close(self) -> None:
        """Free nothing: the handle is Spark's."""


def write_inputs(folder: Path) -> None:
    """Write a file of orders and one of payments per batch; every third payment comes later."""
    late: list[dict[str, object]] = []
    for batch in range(BATCHES):
        orders, payments, late = [], late, []
        for place in range(ORDERS_PER_BATCH):
            number = batch * ORDERS_PER_BATCH + place
            at_s = START_S + batch * BATCH_S + place * 60
            orders.append(
                {
                    "id": number,
                    "customer": BUYERS[number % len(BUYERS)],
                    "product": PRODUCTS[number % len(PRODUCTS)],
                    "amount": f"{5 + number * 7 % 40}.{number * 5 % 100:02}",
                    "ordered_at": _text(at_s),
                }
            )
            payment: dict[str, object] = {"order_id": number, "paid_at": _text(at_s + 30)}
            (late if number % 3 == 2 else payments).append(payment)
        for name, rows in (("orders", orders), ("payments", payments)):
            file = folder / name / f"{batch}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            # The source reads older files first.
            os.utime(file, (START_S + batch, START_S + batch))


def _text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def customers(spark: SparkSession, inputs: Path) -> DataFrame:
    """Return the rows of the query."""
    reader = spark.readStream.option("maxFilesPerTrigger", 1)
    orders = reader.schema(ORDER).json(f"{inputs}/orders").withWatermark("ordered_at", "10 minutes")
    payments = reader.schema(PAYMENT).json(f"{inputs}/payments")
    payments = payments.withWatermark("paid_at", "10 minutes")
    near = f.expr("id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR")
    paid = orders.join(payments, near).select("customer", "product", "id", "amount")
    by_customer = paid.groupBy("customer")
    return by_customer.transformWithState(Customers(), RESULT, "Append", "None")


def main() -> None:
    """Make the checkpoint anew."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER).resolve()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    job = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.join.stateFormatVersion": "3",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        "spark.ui.enabled": "false",
    }
    spark = SparkSession.builder.config(map={**job, **cairn.spark_conf(job)}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Spark stores the paths of the inputs and of the checkpoint: not those of a user's folders.
    scratch = Path(tempfile.gettempdir()) / "cairn-sample"
    shutil.rmtree(scratch, ignore_errors=True)
    write_inputs(scratch / "input")
    made = scratch / "checkpoint"
    sink = customers(spark, scratch / "input").writeStream.format("noop").outputMode("append")
    sink = sink.option("checkpointLocation", str(made)).trigger(availableNow=True)
    sink.start().awaitTermination()
    spark.stop()
    # Locks and checksums, of no use to readers.
    for hidden in made.rglob(".*"):
        hidden.unlink()
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(made, target)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
