"""What tests are written with: an engine whose clock is held, promises that are watched, an explorer of orders.

Clients, charts and trio code of any kind are tested with it, ours first. No engine imports it.
"""
