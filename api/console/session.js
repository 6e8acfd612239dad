// The one session of this browser: its token, here and in sessionStorage, is shared by the tabs and goes with them.

import { known, now, pause } from "./clock.js";
import { call, Problem, send } from "./http.js";
import * as siteData from "./site_data.js";
import * as tabs from "./tabs.js";

const STORED = "hatchway.session";
const ANSWER_WITHIN = 250; // ms the other tabs have to answer
const listeners = new Set();
const gone = new Set(); // sessions that ended: no late message brings one back
let live = null; // {token, permissions, expires_at, issued_at, session, identity, method}, and key_expires_at if near

export const current = () => live;

/**
 * `listener(session | null, why)`; why is `signed-in`, `renewed`, `elsewhere`, `expired`, `ended` or `logging-out`, and
 * after that `logged-out`, or `untold` with the `Problem` that kept the engine from hearing of it.
 */
export const onChange = (listener) => listeners.add(listener);

/**
 * Signed in: asks what the token is good for, then shares it. `answer` is the session object of contract 2.2. Where that
 * can't be, or another tab was quicker, no session is left behind that nobody knows.
 */
export async function begin(answer) {
  const { token } = answer;
  const told = await call("GET", "/api/auth/inspect/", { token }).catch((problem) => {
    discard(token);
    throw problem;
  });
  if (live) return discard(token);
  const { identity, method, session, expires_at } = told;
  adopt({ ...answer, issued_at: issuedAt(token), identity, method, session, expires_at }, "signed-in");
  tabs.tell({ kind: "session", session: live });
}

/** Ends a session that was begun and is not used; where the engine does not hear of it, its time ends it. */
export const discard = (token) =>
  call("POST", "/api/auth/logout/", { token, keepalive: true }).then(
    () => {},
    () => {},
  );

/** After a refresh the token is in sessionStorage; a new tab asks the others. Resolves to whether there is one. */
export async function restore() {
  try {
    live = JSON.parse(siteData.read(STORED));
    if (live) await check();
    else await askOthers();
  } catch (error) {
    live = null; // what can't be taken up again is not looked for at the next refresh either
    siteData.remove(STORED);
    throw error;
  }
  return live !== null;
}

/**
 * Is it still good, for what, and until when? Asked after a refresh, whenever the page comes back into view (a host may
 * have slept), and where an answer shows that the engine knows better: a key's end and its permissions may be changed.
 */
export async function check() {
  try {
    const { token } = live;
    const { permissions, expires_at, key_expires_at } = await use("GET", "/api/auth/inspect/");
    const ends = live.token === token && { expires_at, key_expires_at }; // not where it was renewed meanwhile
    adopt({ ...live, permissions, ...ends }, "renewed");
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem; // a refusal has already ended the session; silence ends nothing
  }
}

/**
 * A call under the session, with the answer's JSON. A 401 ends it here, unless another tab has a newer token. An answer
 * that comes once the session is over, or is another, is nobody's: it is refused.
 */
export const use = (method, path, options) => under(call, method, path, options);

/** The same, with the response, for a stream. */
export const openStream = (path, options) => under(send, "GET", path, options);

async function under(ask, method, path, options = {}) {
  const { token, session } = live ?? {};
  const answer = await ask(method, path, { ...options, token }).catch(async (problem) => {
    if (problem.code === "permission_denied" && live?.session === session) check(); // they were narrowed meanwhile
    if (problem.status !== 401 || !token) throw problem;
    if (live?.token === token) await askOthers();
    if (live?.session !== session) throw problem;
    if (live.token !== token) return ask(method, path, { ...options, token: live.token });
    end(now() >= live.expires_at ? "expired" : "ended");
    throw problem;
  });
  if (live?.session !== session) throw new Problem(0, { code: "session_over", detail: "the session that asked is over" });
  return answer;
}

/**
 * Carries out `work`; resolves to the reason against it, which is empty where there is none, or none that concerns the
 * session that is now.
 */
export async function attempt(work) {
  const asked = live?.session;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (live?.session === asked) return error.message;
  }
  return "";
}

/**
 * A whole list, page by page: the rows under `name`. Resolves to `{rows, first}`, the first page with what else it says.
 */
export async function useList(path, name) {
  const first = await use("GET", path);
  const rows = [...first[name]];
  for (let { next } = first; next; ) {
    const page = await use("GET", `${path}?after=${encodeURIComponent(next)}`);
    rows.push(...page[name]);
    next = page.next > next ? page.next : undefined;
  }
  return { rows, first };
}

/** Renews a token past half its lifetime. One tab does it for all: whoever holds the lock, while the rest go on. */
export async function renewIfDue() {
  if (!due()) return;
  const once = (lock) => lock && due() && renew();
  if (!navigator.locks) return once(true);
  await navigator.locks.request("hatchway-renewal", { ifAvailable: true }, once).catch((error) => {
    if (error.name !== "SecurityError") throw error;
    return once(true); // told to keep no site data, a browser gives no locks either
  });
}

const due = () => live !== null && now() > (live.issued_at + live.expires_at) / 2;

async function renew() {
  const { session } = live;
  const answer = await use("POST", "/api/auth/renew/").catch((problem) => {
    if (problem instanceof Problem) return null; // the token it has is good until its own end
    throw problem;
  });
  if (!answer || live?.session !== session) return; // logout wins over a renewal
  adopt({ ...live, key_expires_at: undefined, ...answer, issued_at: issuedAt(answer.token) }, "renewed");
  tabs.tell({ kind: "session", session: live });
  await pause(ANSWER_WITHIN); // the lock is kept until the others have heard
}

/** Ends it for every tab at once, then at the engine, also if the page is closed now; what came of it is told last. */
export async function logout() {
  if (!live) return;
  const { token, session } = live;
  end("logging-out");
  tabs.tell({ kind: "ended", session });
  const problem = await call("POST", "/api/auth/logout/", { token, keepalive: true }).catch((problem) => problem);
  const told = problem === null || problem.status === 401; // 401: it had ended already
  listeners.forEach((listener) => listener(null, told ? "logged-out" : "untold", problem));
}

/** Called each second: the engine's clock ends a session even if nobody asks the engine. */
export async function expireIfDue() {
  const over = () => live !== null && past(live);
  if (over()) await askOthers(); // this tab may have slept while another renewed
  if (over()) end("expired");
}

/** A new tab knows the session before it knows the engine's clock: by its own device's nothing is over. */
const past = (session) => known() && now() >= session.expires_at;

function end(why) {
  gone.add(live.session);
  live = null;
  siteData.remove(STORED);
  listeners.forEach((listener) => listener(null, why));
}

function issuedAt(token) {
  return JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/"))).iat;
}

function adopt(session, why) {
  live = session;
  siteData.write(STORED, JSON.stringify(live));
  listeners.forEach((listener) => listener(live, why));
}

async function askOthers() {
  const before = live;
  tabs.tell({ kind: "ask" });
  for (let waited = 0; waited < ANSWER_WITHIN && live === before; waited += 25) await pause(25);
}

tabs.listen({
  ask: () => live && tabs.tell({ kind: "session", session: live }),
  ended: ({ session }) => {
    gone.add(session);
    if (live?.session === session) end("elsewhere");
  },
  session: ({ session }) => {
    if (gone.has(session.session) || past(session) || !supersedes(session, live)) return;
    if (live && live.session !== session.session) {
      gone.add(live.session);
      discard(live.token);
    }
    adopt(session, live ? "renewed" : "signed-in");
  },
});

/**
 * Whether a session that a tab tells of is to be taken in place of the one here. Tabs that signed in at one moment agree
 * on one of their sessions. Of one session the later token counts, though its end may have come nearer.
 */
function supersedes(told, mine) {
  if (!mine || told.issued_at !== mine.issued_at) return !mine || told.issued_at > mine.issued_at;
  return told.session > mine.session;
}
