"""`df.write.format("tidelog")` and `df.writeStream.format("tidelog")`: rows into topics, exactly once.

Loaded by source/__init__.py when somebody writes. docs/decisions/0011 says why it is done this way.

    options.py, shape.py    what a user may ask for, and what a row may look like
    writers.py              Spark's two kinds of writers
    task.py, outlet.py      what a task does: Arrow batches to record batches, those to the brokers
    receipts.py             what a task tells the driver, and what the state topic keeps of it
    journal.py              the state topic: which epoch was decided, and which is complete
    committing.py           the driver's part: decide, end every transaction, repair
    salvage.py              rows whose transaction was aborted after the decision, out of the log itself
"""
