// An instance's log, followed while it is open and the page is seen.

import { el } from "./dom.js";
import { Problem } from "./http.js";
import { openStream } from "./session.js";
import { inSlot, pieces } from "./streams.js";

const LONGEST = 200_000; // characters kept
const closers = new WeakMap();

/** Opens the log in `panel`, or shuts it; shutting hangs up. */
export function toggleLog(button, panel, identity, path) {
  const opening = panel.hidden;
  panel.hidden = !opening;
  button.setAttribute("aria-expanded", String(opening));
  closers.get(panel)?.();
  if (opening) closers.set(panel, fillPanel(panel, identity, path));
  else panel.replaceChildren();
}

/** Builds the panel and follows; returns a function that stops. */
function fillPanel(panel, identity, path) {
  const text = el("pre", { tabindex: "0", role: "log", "aria-live": "off", "aria-label": `Log of ${identity}` });
  const state = el("p", { class: "hint", role: "status" }, "Connecting…");
  let hangUp = () => {};
  const follow = (stream) => {
    hangUp();
    hangUp = read(`${path}?stream=${stream}&follow=true`, text, state);
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
  return () => hangUp();
}

function read(path, text, state) {
  const ending = new AbortController();
  text.textContent = "";
  const say = (words) => {
    state.textContent = words;
  };
  follow(
    path,
    ending.signal,
    () => say("Following."),
    (piece) => append(text, piece),
  ).then(
    () => say(text.textContent ? "The log has ended." : "The log is empty."),
    (error) => {
      if (error instanceof Problem) say(error.message);
      else if (error.name !== "AbortError") say("The connection was lost.");
    },
  );
  return () => ending.abort();
}

const follow = (path, signal, opened, take) =>
  inSlot(signal, async () => {
    const response = await openStream(path, { headers: { Accept: "text/plain" }, signal });
    opened();
    for await (const piece of pieces(response)) take(piece);
  });

/** Adds text and stays at the end, unless the reader has scrolled up. */
function append(text, piece) {
  const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
  text.append(piece);
  if (text.textContent.length > LONGEST) text.textContent = text.textContent.slice(-LONGEST / 2);
  if (atEnd) text.scrollTop = text.scrollHeight;
}
