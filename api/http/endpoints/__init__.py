"""The functions of endpoints, a file for each resource: each takes an `Invocation` and returns a `Response`."""
