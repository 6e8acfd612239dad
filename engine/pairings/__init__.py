"""The pairing service: codes that are out, their claims and answers. It knows sessions only by what it is given."""
