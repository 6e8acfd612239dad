"""Helpers of the tests: fakes, processes, browsers, what hostile clients send."""
