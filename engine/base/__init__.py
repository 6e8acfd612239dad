"""What every other package stands on: errors, clock, private files, durations, names of permissions.

It knows no package of the engine.
"""
