"""Several engines over one store: leases, messages, a mirror kept whole, codes claimed elsewhere."""
