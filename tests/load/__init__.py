"""Long runs and measurements: load, crashes, fuzzing, the simulation, the bench."""
