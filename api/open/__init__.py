"""The tunnel of `hatchway open HOST`: from this machine to the console of an engine on a host behind SSH.

It connects, attaches, forwards, and connects again when the network was lost. It knows nothing of the terminal, which
is the command's (`api.cli.open`). Only that command imports it.
"""
