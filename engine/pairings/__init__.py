"""The pairing service: codes, their claims and answers. Sessions it starts and ends by functions it is given."""
