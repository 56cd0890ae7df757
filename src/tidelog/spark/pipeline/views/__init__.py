"""Views: how records become changes (changes.py), changes become rows (latest.py, folding.py), and what a batch writes
(viewing.py); the view of an earlier time (as_of.py). docs/views.md says what it means."""
