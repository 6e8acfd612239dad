"""`python -m tests.bench`: what Hatchway costs, beside what people would use instead, in one run."""
