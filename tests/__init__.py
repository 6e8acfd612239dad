"""Promises of Hatchway, one test each."""
