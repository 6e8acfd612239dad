"""The whole engine in virtual time, with people and faults that dice choose."""
