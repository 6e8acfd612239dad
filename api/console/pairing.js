// Sign-in by pairing code: claim it, then hold the line until the operator has answered (section 4.4).

import { Problem, send } from "./http.js";
import { objects } from "./streams.js";

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
  const headers = { Accept: "application/x-ndjson" };
  const response = await send("POST", "/api/auth/pair/request/", { body: { code }, headers, signal });
  try {
    for await (const item of objects(response)) {
      if (item.accepted) accepted(item);
      else if (item.token) return item;
      else throw new Problem(item.status, item);
    }
  } catch (error) {
    if (error instanceof Problem || error.name === "AbortError") throw error;
  }
  throw new Problem(0, {
    code: "unreachable",
    detail: "the connection was lost before the operator answered; the code is used up",
  });
}
