// An instance's log, followed while it is open and the page is seen.

import { el } from "./dom.js";
import { Problem } from "./http.js";
import { openStream } from "./session.js";
import { backOff, inSlot, pieces } from "./streams.js";

const LONGEST = 200_000; // characters kept
const HUNG_UP = "The engine hung up. The instance may run on: its log is followed again once the engine is back.";
const followers = new Map(); // open panel -> what follows its log

document.addEventListener("visibilitychange", () => {
  letGo();
  for (const follower of followers.values()) (document.hidden ? follower.hangUp : follower.begin)();
});

/** Follows each open log on a new connection: where the engine was not heard for a while, the old ones may be dead. */
export function followAgain() {
  letGo();
  for (const follower of followers.values()) follower.begin();
}

/** Hangs up for panels that are not in the page any more. */
export function letGo() {
  for (const [panel, follower] of followers) {
    if (panel.isConnected) continue;
    follower.hangUp();
    followers.delete(panel);
  }
}

/** Opens the log in `panel`, or shuts it; shutting hangs up. */
export function toggleLog(button, panel, identity, path) {
  const opening = panel.hidden;
  panel.hidden = !opening;
  button.setAttribute("aria-expanded", String(opening));
  followers.get(panel)?.hangUp();
  followers.delete(panel);
  if (opening) fillPanel(panel, identity, path);
  else panel.replaceChildren();
}

/** Builds the panel and follows. */
function fillPanel(panel, identity, path) {
  const text = el("pre", { tabindex: "0", role: "log", "aria-live": "off", "aria-label": `Log of ${identity}` });
  const state = el("p", { class: "hint", role: "status" }, "Connecting…");
  const follow = (stream) => {
    followers.get(panel)?.hangUp();
    text.textContent = "";
    followers.set(panel, follower(`${path}?stream=${stream}&follow=true`, text, state));
    followers.get(panel).begin();
  };
  const pick = (stream, label) =>
    el(
      "label",
      {},
      el("input", {
        type: "radio",
        name: `stream-${identity}`,
        checked: stream === "out",
        on: { change: () => follow(stream) },
      }),
      el("span", {}, label),
    );
  panel.replaceChildren(
    el(
      "fieldset",
      { class: "switch small" },
      el("legend", { class: "sr" }, "Which stream"),
      pick("out", "Output"),
      pick("err", "Errors"),
    ),
    text,
    state,
  );
  follow("out");
}

/** What reads a log into `text` until it ends, on one connection after another, and says in `state` how it stands. */
function follower(path, text, state) {
  let connection = null;
  let over = false;
  const say = (words) => {
    state.textContent = words;
  };
  const follow = (signal) =>
    inSlot(signal, async () => {
      const response = await openStream(path, { headers: { Accept: "text/plain" }, signal });
      say("Following.");
      await fill(text, response);
    });
  const begin = async () => {
    connection?.abort();
    if (over) return;
    const { signal } = (connection = new AbortController());
    say("Connecting…");
    for (let failures = 0; !signal.aborted && text.isConnected; failures += 1) {
      try {
        await follow(signal);
        over = true;
        return say(text.textContent ? "The log has ended." : "The log is empty.");
      } catch (error) {
        if (signal.aborted) return;
        over = error instanceof Problem && error.status >= 400 && error.status < 500;
        if (over) return say(error.message);
        if (!(error instanceof Problem)) failures = 0; // it was followed until then
        say(HUNG_UP);
      }
      await backOff(failures);
    }
  };
  return { begin, hangUp: () => connection?.abort() };
}

/** Each connection brings the log from its beginning: it takes the place of what is there, and is read where that was. */
async function fill(text, response) {
  const place = isAtEnd(text) ? null : text.scrollTop;
  let begun = false;
  for await (const piece of pieces(response)) {
    if (!begun) text.textContent = "";
    append(text, piece);
    if (!begun && place !== null) text.scrollTop = place;
    begun = true;
  }
}

const isAtEnd = (text) => text.scrollHeight - text.scrollTop - text.clientHeight < 40;

/** Adds text and stays at the end, unless the reader has scrolled up. */
function append(text, piece) {
  const follows = isAtEnd(text);
  text.append(piece);
  if (text.textContent.length > LONGEST) text.textContent = text.textContent.slice(-LONGEST / 2);
  if (follows) text.scrollTop = text.scrollHeight;
}
