"""The name that the tokens of test engines carry as `iss` and `aud`, and no other engine's."""

TEST_ISSUER = "urn:hatchway:test"
