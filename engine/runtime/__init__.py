"""The event loop of the charts: actors, their steps and their delays.

It knows charts, stores and clocks, and nothing of sign-in, HTTP, files or processes: a service registers a chart with
the functions that its names stand for, and sends events.
"""

from hatchway.engine.runtime.actors import UNKNOWN, Actor, ActorLocks, Data, Effect
from hatchway.engine.runtime.runtime import Runtime

__all__ = ["UNKNOWN", "Actor", "ActorLocks", "Data", "Effect", "Runtime"]
