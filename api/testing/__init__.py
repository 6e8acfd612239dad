"""Tools for tests: an engine whose clock stands still, watchers of its promises, an explorer of task orders.

They are for clients, for charts, and for any trio code. No engine imports them.
"""
