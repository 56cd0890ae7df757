"""One file per client library: its own calls behind the scenarios' questions."""
