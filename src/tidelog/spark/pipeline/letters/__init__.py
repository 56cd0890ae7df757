"""Dead letters and retries of an ingest flow: every record is in the table, a dead letter, or retrying, once.

    options.py      the section `dead_letters` of a flow
    headers.py      what a letter's headers say, for Spark and for plain Python
    judging.py      which rows of a batch are good, dead, to be retried, or not due yet
    decisions.py    what was decided of a batch, kept before anything of it is written
    sink.py         a batch: decide, letters to their topics, rows to the table
    lookups.py      tables of other flows that conditions may ask
    topics.py       the topics of letters, made where they are missing
    waking.py       a batch for records that come due while the topics are silent
    reading.py      letters of a topic in plain Python; trail.py, filters.py and redriving.py send them back
    outlets.py      what the audit counts of them

docs/decisions/0014 says why it is done this way.
"""
