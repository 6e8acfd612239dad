"""Key files, authorized_keys, rotation, signatures."""
