// What the session may do here. The engine decides; this only keeps the page from offering what would be refused.

import { current } from "./session.js";

/** Does the session hold `needed` (`RUNTIME`, or `RUNTIME:READ` for looking)? MASTER holds all. */
export function allows(needed) {
  const held = current()?.permissions ?? [];
  const full = needed.split(":")[0];
  return held.includes("MASTER") || held.includes(full) || held.includes(needed);
}
