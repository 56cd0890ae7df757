"""A flow's output rebuilt from the log beside the live one, and swapped in when its audit balances."""
