"""Tests of `hatchway open` and of ssh:// addresses, on a real sshd."""
