"""`read=segments`: a task's bytes straight from the segment files of a broker's log directory.

Where a stretch begins and ends, which topic it is of and which records count is the broker's word; only the bytes come
from elsewhere. Whatever a file cannot vouch for (it is gone, was cleaned or truncated meanwhile, is damaged, or is of
another history than the leader's) is fetched from the broker instead.

    folder.py       a partition's directory, held open: which segments there are, of which topic
    segment.py      one open .log file: where an offset is, pieces of whole batches
    walk.py         from segment to segment; says where the files have a gap
    bounds.py       what the broker says: log start, topic id, where the records of each leader epoch end
    markers.py      which transactions were aborted, by their markers in the log
    reading.py      all of it together: the chunks of a stretch, from files or from the broker

Files are read (pread), never mapped: one that is truncated under a mapping kills the process.
"""
