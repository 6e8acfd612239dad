"""Both ends of a pairing in virtual time: an operator at a terminal, and a console's claim under way."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from hatchway.engine.base.permissions import FIVE
from hatchway.engine.engine import Engine
from hatchway.engine.pairings.pairings import Issued
from hatchway.engine.runtime.records import Origin
from tests.support.fakes import Browser, Reply

PAIR = "/api/auth/pair/request/"
OPERATOR = Origin("operator")
INVALID = {"status": 401, "code": "invalid_pairing_code", "detail": "invalid pairing code"}
EXPIRED = {"status": 401, "code": "pairing_expired_on_approval", "detail": "pairing expired on approval"}


class Host:
    """An operator at a terminal: prints codes, sees what is told, answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.told: list[tuple[str, dict[str, Any]]] = []

    def terminal(self, event: str, **details: Any) -> None:
        self.told.append((event, details))

    async def print_code(self, permissions: tuple[str, ...] = FIVE, lifetime: int = 3600) -> Issued:
        return await self.engine.pairings.issue(permissions, lifetime, self.terminal, OPERATOR)

    async def answer(self, issued: Issued, approved: bool) -> None:
        await self.engine.pairings.answer(issued.id, approved, OPERATOR)

    @property
    def last(self) -> str:
        return self.told[-1][0]


async def claim(nursery: trio.Nursery, browser: Browser, code: str, **more: Any) -> Reply:
    """A claim under way, its first line there or its answer complete."""
    reply = Reply()
    nursery.start_soon(partial(browser.talk, reply, "POST", PAIR, {"code": code}, **more))
    await trio.testing.wait_all_tasks_blocked()
    return reply


def is_problem(value: dict[str, Any], expected: dict[str, Any]) -> bool:
    return expected.items() <= value.items()
