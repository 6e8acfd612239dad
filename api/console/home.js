// The signed-in page: who, what, for how long; then the lists this session may see.

import { countdown, now, spell, when } from "./clock.js";
import { announce, byId, el, note } from "./dom.js";
import { call } from "./http.js";
import * as instances from "./instances.js";
import * as keyList from "./key_list.js";
import * as live from "./live.js";
import { allows } from "./permissions.js";
import { current } from "./session.js";
import * as sessions from "./sessions.js";

const WARN_AT = 60; // seconds before the end, said aloud once
let timer = null;
let warned = false;
let held = ""; // the permissions that the page is laid out for
const parts = new Set(); // the parts that are open

/** Opens the page for a session; what it may not see is neither shown nor asked for. */
export function enter(session) {
  held = session.permissions.join();
  tell(session);
  sessions.enter((list) =>
    live.settle(
      "session",
      list.map(({ session: name }) => [name, "active"]),
    ),
  );
  layOut();
  if (location.protocol === "https:") showCertificate();
  timer = setInterval(tick, 250);
}

/** The same session with a newer token, another end or other permissions. */
export function refresh(session) {
  tell(session);
  if (held === session.permissions.join()) return;
  held = session.permissions.join();
  const focused = document.activeElement;
  layOut();
  announce(`Your permissions were changed. You have now: ${session.permissions.join(", ") || "none"}.`);
  if (focused !== document.body && !isShown(document.activeElement)) byId("home-title").focus();
}

const isShown = (element) => element !== document.body && element.getClientRects().length > 0;

/** Opens and shuts the parts that hang on permissions; one that stays is left alone, with what is typed and read there. */
function layOut() {
  part("instances", allows("RUNTIME:READ"), enterInstances, instances.leave);
  if (parts.has("instances")) instances.permit();
  part("keys", allows("MASTER"), keyList.enter, keyList.leave);
  part("live", allows("MASTER"), live.enter, live.leave);
}

function part(name, allowed, open, shut) {
  if (allowed === parts.has(name)) return;
  if (allowed) parts.add(name);
  else parts.delete(name);
  (allowed ? open : shut)();
}

const enterInstances = () =>
  instances.enter((list) =>
    live.settle(
      "instance",
      list.map(({ identity, state }) => [identity, state]),
    ),
  );

function tell(session) {
  byId("facts").replaceChildren(
    ...fact("Identity", el("span", { class: "mono wrap" }, session.identity)),
    ...fact("Method", sessions.METHODS.get(session.method) ?? session.method),
    ...(session.key_expires_at ? fact("Key", `Expires at ${when(session.key_expires_at)}`) : []),
    ...fact("Permissions", el("ul", { class: "chips" }, session.permissions.map(chip))),
  );
  tick();
}

/** To be compared with what the engine printed at its start: behind a proxy the browser shows the proxy's instead. */
async function showCertificate() {
  const { certificate } = await call("GET", "/readyz").catch(() => ({}));
  byId("certificate").textContent = certificate ? `The engine's certificate: SHA-256 ${certificate}` : "";
}

export function leave() {
  clearInterval(timer);
  say("");
  parts.clear();
  sessions.leave();
  instances.leave();
  keyList.leave();
  live.leave();
}

/** A word above the page. */
export const say = (notice) => note(byId("home-notice"), notice);

/** Takes out what the person who was signed in typed, and what was said to that person. */
export function clear() {
  instances.clear();
  say("");
  for (const list of ["sessions", "keys"]) note(byId(`${list}-problem`), "");
  announce("");
}

function fact(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

function chip(permission) {
  const [name, grade] = permission.split(":");
  return el("li", {}, name, grade && el("small", {}, grade === "READ" ? "read only" : grade));
}

function tick() {
  const session = current();
  if (!session) return;
  const left = session.expires_at - now();
  const whole = session.expires_at - session.issued_at;
  for (const id of ["left-clock", "top-clock"]) byId(id).textContent = countdown(left);
  byId("left-bar").style.width = `${Math.max(0, Math.min(100, (100 * left) / whole))}%`;
  byId("left").classList.toggle("short", left < WARN_AT);
  const lasts = `It lasts ${spell(whole)} and is renewed while you use this page, once half has passed.`;
  const hint = `Ends at ${when(session.expires_at)}. ${lasts}`;
  if (byId("left-hint").textContent !== hint) byId("left-hint").textContent = hint;
  if (left < WARN_AT && !warned) announce("Your session ends in less than a minute. Press any key to renew it.");
  warned = left < WARN_AT;
}
