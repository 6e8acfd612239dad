"""What Hatchway promises of its speed, as bounds on the figures of one run."""

from tests.bench.endpoints import ASGI, HELLO
from tests.bench.results import Promise

LEAST, MOST = "at least", "at most"

# fmt: off
PROMISES = (
    Promise(f"inspect, Hatchway / {HELLO}",                        LEAST, 8.0),
    Promise("inspect, Hatchway / oidc-provider",                   LEAST, 3.0),
    Promise("inspect, Hatchway / FastAPI by hand, EdDSA",          LEAST, 4.0),
    Promise("inspect, Hatchway / jupyter_server",                  LEAST, 8.0),
    Promise(f"inspect, {ASGI} / {HELLO}",                          LEAST, 2.2),
    Promise(f"sessions list through Quart / {HELLO}",              LEAST, 0.8),
    Promise("sign-in, Hatchway / Authlib",                         LEAST, 4.0),
    Promise("sign-in, Hatchway / oidc-provider",                   LEAST, 4.0),
    Promise("sign-in, Hatchway / FastAPI by hand, EdDSA",          LEAST, 1.5),
    Promise("inspect at 1024, Hatchway, p99 / p50",                MOST,  5.0),
    Promise("inspect at 1024, Hatchway, errors",                   MOST,  0.0),
    Promise("y to the token, 2,000 streams held, p99",             MOST,  5.0),
    Promise("held event stream",                                   MOST,  25.0),
    Promise("chart step / transitions' own trigger",               MOST,  1.5),
    Promise("chart step / xstate's",                               MOST,  1.0),
    Promise("live actor with an armed delay",                      MOST,  600.0),
    Promise("1,000,000 armed timers, memory",                      MOST,  250.0),
    Promise("1,000,000 timers, time to arm",                       MOST,  5.0),
    Promise("1,000,000 timers, idle",                              MOST,  0.1),
    Promise("1,000,000 timers, p99.9 lateness at 1,000/s",         MOST,  50.0),
    Promise("sign-in, 100,000 / 100 sessions",                     MOST,  1.05),
    Promise("inspect, 100,000 / 100 sessions",                     MOST,  1.05),
    Promise("renew, 100,000 / 100 sessions",                       MOST,  1.05),
    Promise("logout, 100,000 / 100 sessions",                      MOST,  1.05),
    Promise("hatchway --help",                                     MOST,  150.0),
    Promise("engine start to first answer",                        MOST,  600.0),
    Promise("engine, idle memory",                                 MOST,  60.0),
)
# fmt: on
