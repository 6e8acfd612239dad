// Streams of text: NDJSON lines of a pairing, server-sent events, a log that grows.

import { pause } from "./clock.js";
import { silence } from "./http.js";

const SLOTS = 4;
const AGAIN_AFTER = [1, 2, 4, 8, 15]; // seconds

/** Waits before a connection is made anew: the longer, the more have failed on end. */
export const backOff = (failures) => pause(1000 * AGAIN_AFTER[Math.min(failures, AGAIN_AFTER.length - 1)]);

/**
 * Runs `work` in one of the few places for held answers that all tabs of a browser share; waits for one if all are
 * taken. A browser keeps six connections to one host: without this, open logs would keep a logout from being sent.
 */
export async function inSlot(signal, work) {
  if (!navigator.locks) return work();
  signal.throwIfAborted();
  const asking = new AbortController();
  signal.addEventListener("abort", () => asking.abort(), { once: true });
  let running = null;
  const asked = Array.from({ length: SLOTS }, (_, slot) =>
    navigator.locks.request(`hatchway-stream-${slot}`, { signal: asking.signal }, () => {
      if (running || signal.aborted) return;
      running = work();
      asking.abort(); // the other places are others'
      return running;
    }),
  );
  await Promise.allSettled(asked);
  signal.throwIfAborted();
  return running ?? work(); // no place was given: told to keep no site data, a browser gives no locks either
}

/**
 * The text of a streamed answer, piece by piece. `within` tells how many ms may pass before the next byte; then the
 * engine is not heard any more, and the stream rejects with that `Problem`.
 */
export async function* pieces(response, within = () => Infinity) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let part = await heard(reader, within()); !part.done; part = await heard(reader, within())) yield part.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

function heard(reader, within) {
  if (within === Infinity) return reader.read();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(silence()), within);
  });
  return Promise.race([reader.read(), late]).finally(() => clearTimeout(timer));
}

/** Its lines, without their ends; what follows the last newline counts as one when the stream ends. */
async function* lines(response, within) {
  let rest = "";
  for await (const piece of pieces(response, within)) {
    const whole = (rest + piece).split("\n");
    rest = whole.pop();
    for (const line of whole) yield line.replace(/\r$/, "");
  }
  if (rest) yield rest;
}

/** Objects of an NDJSON answer; the blank lines that keep proxies awake are passed over. */
export async function* objects(response, within) {
  for await (const line of lines(response, within)) if (line.trim()) yield JSON.parse(line);
}

/**
 * Server-sent events as `{id, event, data}`; comments are passed over. An id alone, which tells where the stream stands,
 * comes with `data` null.
 */
export async function* events(response, within) {
  let frame = { id: "", event: "message", data: [] };
  for await (const line of lines(response, within)) {
    if (line) {
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (field === "data") frame.data.push(value);
      else if (field) frame[field] = value;
    } else {
      if (frame.data.length || frame.id) yield { ...frame, data: frame.data.length ? frame.data.join("\n") : null };
      frame = { id: frame.id, event: "message", data: [] };
    }
  }
}
