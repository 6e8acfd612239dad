"""`hatchway open HOST`: from this machine to a console on a host behind SSH, and held open.

It knows how a host is dialled, attached to, forwarded from and dialled again; it does not know the terminal, which is
the command's (`api.cli.open`). Only that command imports it.
"""
