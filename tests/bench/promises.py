"""What Hatchway promises of its speed: bounds on ratios, each beside its yardstick in the same run."""

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
    Promise("chart step / transitions' own trigger",               MOST,  1.5),
    Promise("chart step / xstate's",                               MOST,  1.0),
    Promise("sign-in, 100,000 / 100 sessions",                     MOST,  1.05),
    Promise("inspect, 100,000 / 100 sessions",                     MOST,  1.05),
    Promise("renew, 100,000 / 100 sessions",                       MOST,  1.05),
    Promise("logout, 100,000 / 100 sessions",                      MOST,  1.05),
    Promise("fleet joined, 100,000 / 100 sessions",                MOST,  3.0),
    Promise("fleet found again, 100,000 / 100 sessions",           MOST,  3.0),
    Promise("y to the token, p99, with streams held / with none",  MOST,  3.0),
    Promise("held event stream / an idle connection",              MOST,  1.0),
    Promise("live actor / the same by hand",                       MOST,  1.0),
    Promise("timers, memory / a bare heap's",                      MOST,  2.0),
    Promise("timers, time to arm / a bare heap's",                 MOST,  3.0),
    Promise("timers, p99.9 lateness / a bare heap's",              MOST,  2.0),
    Promise("hatchway --help / python -c pass",                    MOST,  9.0),
    Promise("hatchway engine ping / python -c pass",               MOST,  10.0),
    Promise("engine start / the bare hello's",                     MOST,  3.0),
    Promise("engine, idle memory / the bare hello's",              MOST,  1.9),
)
# fmt: on
