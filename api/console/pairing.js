// Sign-in by pairing code: claim it, then hold the line until the operator has answered (section 4.4).

import { Problem, send } from "./http.js";
import { objects } from "./streams.js";

const SILENCE = 12_000; // ms: an engine that waits for its operator sends a blank line each 5 s
const WINDOW = 30; // seconds an operator has to answer
const GRACE = 5000; // ms after the window, for the way

const LOOK_ALIKES = { O: "0", I: "1", L: "1" };
const SHAPE = /^[0-9A-HJKMNP-TV-Z]{8}$/; // Crockford's base32

/** `abcd-ef1o` -> `ABCDEF10`; null if it can't be a code. Any case, spaces and hyphens of every kind. */
export function readCode(text) {
  const bare = text
    .normalize("NFKC")
    .toUpperCase()
    .replace(/[\s\p{Pd}]/gu, "")
    .replace(/[OIL]/g, (letter) => LOOK_ALIKES[letter]);
  return SHAPE.test(bare) ? bare : null;
}

/** The code of `#pair=CODE` in the address, taken out of it at once; null if there is none. */
export function takeFragment() {
  const [, text] = /^#pair=(.*)$/s.exec(location.hash) ?? [];
  if (text === undefined) return null;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    return decodeURIComponent(text).slice(0, 40);
  } catch {
    return text.slice(0, 40);
  }
}

/** Claims `code`; `accepted({match, expires_in})` is called when the engine has it. Resolves to the session object. */
export async function pair(code, accepted, signal) {
  const over = new AbortController(); // by the caller's signal, or by time
  signal.addEventListener("abort", () => over.abort(), { once: true });
  let lapse;
  const lapseAfter = (window) => {
    clearTimeout(lapse);
    lapse = setTimeout(() => over.abort(), window * 1000 + GRACE);
  };
  lapseAfter(WINDOW); // a proxy may hold all of it back, to the end of the window
  try {
    return await claim(code, over.signal, (item) => {
      lapseAfter(item.expires_in);
      accepted(item);
    });
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof Problem ? error : lost();
  } finally {
    clearTimeout(lapse);
  }
}

async function claim(code, signal, accepted) {
  const options = { body: { code }, headers: { Accept: "application/x-ndjson" }, signal, within: Infinity };
  const response = await send("POST", "/api/auth/pair/request/", options);
  let within = Infinity;
  const lines = objects(response, () => within);
  try {
    for (;;) {
      const { value, done } = await lines.next().catch(() => ({ done: true }));
      if (done) throw lost();
      if (value.token) return value;
      if (!value.accepted) throw new Problem(value.status, value);
      within = SILENCE;
      accepted(value);
    }
  } finally {
    lines.return(); // hangs up
  }
}

const lost = () =>
  new Problem(0, {
    code: "unreachable",
    detail: "the connection was lost before the operator answered; the code is used up",
  });
