// What the tabs of one browser tell each other. Messages are same-origin, and their shape is checked all the same.

import { attempt } from "./site_data.js";

const channel = attempt(
  () => new BroadcastChannel("hatchway"),
  () => null, // this tab is alone
);
const text = (value) => typeof value === "string" && value !== "";

const shapes = {
  ask: () => true,
  ended: ({ session }) => text(session),
  session: ({ session: s }) =>
    s !== null &&
    typeof s === "object" &&
    [s.token, s.session, s.identity, s.method].every(text) &&
    Array.isArray(s.permissions) &&
    s.permissions.every(text) &&
    [s.expires_at, s.issued_at].every(Number.isFinite),
};

/** Tells the other tabs: `{kind: "ask"}`, `{kind: "session", session: {...}}` or `{kind: "ended", session: ID}`. */
export const tell = (message) => channel?.postMessage(message);

/** `handlers` has a function for each kind; a message of another shape reaches none. */
export function listen(handlers) {
  channel?.addEventListener("message", ({ data }) => {
    if (data !== null && typeof data === "object" && Object.hasOwn(shapes, data.kind) && shapes[data.kind](data))
      handlers[data.kind](data);
  });
}
