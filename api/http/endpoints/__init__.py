"""One file a resource: functions that take a request at an endpoint and return the response."""
