// Sign-in by pairing code: the form, and the view that waits for the operator.

import { countdown } from "./clock.js";
import { announce, byId, note } from "./dom.js";
import { Problem } from "./http.js";
import { pair, readCode } from "./pairing.js";
import { begin } from "./session.js";

const SHAPE_HINT = "A pairing code has 8 letters and digits, none of them a U.";
const FIRST_LINE_WITHIN = 5000; // milliseconds: an engine takes a second at most
const HELD_BACK =
  "No answer yet: a proxy before the engine may hold it back to its end, and then no number can be shown here to compare.";
let waiting = null; // the AbortController of the one request under way
let show = () => {};

export function start(showView) {
  show = showView;
  byId("pair-form").addEventListener("submit", submit);
  byId("wait-cancel").addEventListener("click", () => waiting?.abort());
  byId("code").addEventListener("input", () => {
    complain("");
    byId("code-prefilled").hidden = true;
  });
}

/** Fills in the code of the address. It is never sent by itself. */
export function prefill(code) {
  if (waiting) return;
  byId("code").value = code;
  byId("code-prefilled").hidden = code === "";
  byId("code-hint").hidden = code !== "";
  complain("");
}

/** Empties the form and gives up a pairing under way. */
export function clear() {
  waiting?.abort();
  prefill("");
}

async function submit(event) {
  event.preventDefault();
  if (waiting) return; // a double click claims once
  const code = readCode(byId("code").value);
  if (code === null) return refuse(SHAPE_HINT);
  waiting = new AbortController();
  setBusy(true);
  const late = setTimeout(() => note(byId("code-error"), HELD_BACK), FIRST_LINE_WITHIN);
  let stop = () => {};
  try {
    const answer = await pair(
      code,
      (claim) => {
        clearTimeout(late);
        note(byId("code-error"), "");
        stop = wait(claim);
      },
      waiting.signal,
    );
    await begin(answer);
  } catch (error) {
    giveUp(error);
  } finally {
    clearTimeout(late);
    stop();
    setBusy(false);
    waiting = null;
  }
}

/** Back to the form, with the engine's own words; a code is used up once it was claimed. */
function giveUp(error) {
  const claimed = !byId("view-waiting").hidden;
  if (claimed) {
    show("signin");
    byId("code").value = "";
    byId("code").focus();
  }
  if (error instanceof Problem) refuse(sentence(error, claimed));
  else if (error.name !== "AbortError") throw error;
  else if (claimed) refuse("Given up. That code is used up: ask for a new one.");
}

function sentence({ code, detail, retryAfter }, claimed) {
  if (code === "invalid_pairing_code" && claimed) return `${detail}: the operator did not approve it.`;
  if (code === "invalid_pairing_code") return `${detail}. It may be mistyped, used, or older than 30 seconds.`;
  if (code === "too_many_requests" && retryAfter && !/\d s\b/.test(detail)) return `${detail}. Try again in ${retryAfter} s.`;
  return `${detail}.`.replace(/\.\.$/, ".");
}

/** Shows the match number and counts the decision window down; returns a function that stops counting. */
function wait({ match, expires_in }) {
  const ends = performance.now() + expires_in * 1000;
  byId("match").textContent = match;
  byId("wait-text").textContent =
    `The terminal on the engine's host shows a number too. If it shows ${match}, answer y there.`;
  const tick = () => {
    const left = Math.max(0, (ends - performance.now()) / 1000);
    byId("wait-clock").textContent = `${countdown(left)} left to answer`;
    byId("dial-left").setAttribute("stroke-dashoffset", String(100 - (100 * left) / expires_in));
  };
  tick();
  show("waiting");
  announce(`Code accepted. Match number ${match}. The operator has ${expires_in} ${expires_in === 1 ? "second" : "seconds"} to answer.`);
  const timer = setInterval(tick, 250);
  return () => clearInterval(timer);
}

function setBusy(now) {
  byId("pair-submit").setAttribute("aria-disabled", String(now));
  byId("pair-submit").textContent = now ? "Pairing…" : "Pair";
}

function refuse(words) {
  complain(words);
  byId("code").focus();
}

/** Says what is wrong with the code; nothing is where there are no words. */
function complain(words) {
  note(byId("code-error"), words);
  byId("code").setAttribute("aria-invalid", String(words !== ""));
}
