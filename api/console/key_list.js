// The authorized keys, for MASTER: what each may do, until when, when it was registered and last used.

import { now, poll, when } from "./clock.js";
import { byId, el, note, reconcile, unbroken } from "./dom.js";
import { attempt, useList } from "./session.js";

const WEEK = 7 * 86400;
let stop = () => {};

/** Keeps the list fresh. */
export function enter() {
  byId("keys").hidden = false;
  stop();
  stop = poll(load, 30);
}

export function leave() {
  stop();
  byId("keys").hidden = true;
  byId("keys-list").replaceChildren();
}

async function load() {
  note(byId("keys-problem"), await attempt(list));
}

async function list() {
  const { rows } = await useList("/api/auth/keys/", "keys");
  rows.sort((a, b) => (b.used_at ?? 0) - (a.used_at ?? 0));
  reconcile(byId("keys-list"), rows, { key: (row) => row.identity, make, update });
}

function make() {
  return el(
    "li",
    { class: "row" },
    el("div", { class: "row-main" }, el("p", { class: "row-title mono wrap" }), el("p", { class: "row-facts" })),
  );
}

function update(row, key) {
  const [title, facts] = row.firstChild.children;
  const ends = expiry(key);
  title.replaceChildren(key.identity, ends ? el("span", { class: "tag" }, ends) : "");
  facts.textContent = [
    key.comment,
    key.permissions.join(", "),
    key.from && `from ${key.from}`,
    key.instances !== null && `${key.instances} instances at most`,
    key.lifetime && `sessions of ${key.lifetime / 60} min at most`,
    key.registered_at && `registered ${when(key.registered_at)}`,
    key.used_at ? `last used ${when(key.used_at)}` : "not used yet",
    key.expires_at && !ends && `until ${when(key.expires_at)}`,
  ]
    .filter(Boolean)
    .map(unbroken)
    .join(" · ");
}

/** Said aloud where it is near. */
function expiry(key) {
  if (key.expires_at === null || key.expires_at - now() > WEEK) return "";
  return key.expires_at <= now() ? "expired" : `expires ${when(key.expires_at)}`;
}
