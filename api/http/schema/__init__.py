"""The description of the API: shapes of requests and responses, and the OpenAPI document."""
