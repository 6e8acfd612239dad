// The list of sessions: this one, the identity's others, and everybody's for MASTER.

import { poll, when } from "./clock.js";
import { byId, confirm, el, note, reconcile, unbroken } from "./dom.js";
import { attempt, check, current, logout, use, useList } from "./session.js";

export const METHODS = new Map([
  ["key", "private key"],
  ["pairing", "pairing code"],
]);
let stop = () => {};
let tell = () => {};
let listed = [];

byId("everywhere").addEventListener("click", everywhere);

/** Keeps the list fresh; `seen` gets it each time. */
export function enter(seen) {
  stop();
  tell = seen;
  stop = poll(load, 10);
}

export function leave() {
  stop();
  listed = [];
  byId("sessions-list").replaceChildren();
}

/** Carries out `work`; a refusal is shown above the list. */
async function carryOut(work) {
  note(byId("sessions-problem"), await attempt(work));
}

const load = () =>
  carryOut(async () => {
    const { rows } = await useList("/api/auth/sessions/", "sessions");
    listed = rows.sort((a, b) => b.current - a.current || b.started_at - a.started_at);
    tell(listed);
    if (listed.some((session) => session.current && session.expires_at < current().expires_at)) check(); // it was shortened
    reconcile(byId("sessions-list"), listed, { key: (session) => session.session, make, update });
  });

function make() {
  return el(
    "li",
    { class: "row" },
    el("div", { class: "row-main" }, el("p", { class: "row-title mono wrap" }), el("p", { class: "row-facts" })),
    el("div", { class: "row-actions" }),
  );
}

function update(row, session) {
  const [title, facts] = row.firstChild.children;
  title.replaceChildren(session.identity, session.current ? el("span", { class: "tag" }, "this session") : "");
  facts.textContent = [
    session.comment,
    session.label,
    METHODS.get(session.method) ?? session.method,
    session.permissions.join(", "),
    `from ${session.address}`,
    `since ${when(session.started_at)}`,
    `last used ${when(session.used_at)}`,
    `until ${when(session.expires_at)}`,
  ]
    .filter(Boolean)
    .map(unbroken)
    .join(" · ");
  row.title = session.agent;
  if (!session.current && !row.lastChild.children.length) row.lastChild.append(revokeButton(session));
}

function revokeButton(session) {
  const began = new Date(session.started_at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
  const label = ["Revoke the session of", session.identity, session.label, `from ${session.address}, since ${began}`]
    .filter(Boolean)
    .join(" "); // an identity may have several
  return el(
    "button",
    { type: "button", class: "quiet danger", "aria-label": label, on: { click: () => revoke(session) } },
    "Revoke",
  );
}

async function revoke(session) {
  const text = `${session.identity}, signed in ${when(session.started_at)} from ${session.address}. It ends at once.`;
  if (!(await confirm({ title: "Revoke this session?", text, yes: "Revoke" }))) return;
  await carryOut(() => use("DELETE", `/api/auth/sessions/${encodeURIComponent(session.session)}/`));
  await load();
  byId("sessions-title").focus();
}

async function everywhere() {
  await load();
  const mine = listed.filter((session) => session.identity === current()?.identity);
  const others = mine.filter((session) => !session.current);
  const count = mine.length === 1 ? "This is the only session" : `All ${mine.length} sessions`;
  const text = `${count} of ${current()?.identity}.`;
  if (!(await confirm({ title: "Log out everywhere?", text, yes: "Log out everywhere" }))) return;
  await carryOut(async () => {
    for (const { session } of others) {
      await use("DELETE", `/api/auth/sessions/${encodeURIComponent(session)}/`).catch((problem) => {
        if (problem.status !== 404) throw problem; // 404: it ended meanwhile
      });
    }
    await logout();
  });
}
