// One request to the engine: JSON in, JSON or a stream out, every refusal an RFC 9457 problem.

import { learn } from "./clock.js";

/** The engine's no. `detail` is its sentence, `code` its word, `retryAfter` in seconds; status 0: it never answered. */
export class Problem extends Error {
  constructor(status, body = {}, retryAfter = null) {
    super(body.detail || body.title || `the engine answered ${status}`);
    Object.assign(this, {
      status,
      code: body.code ?? "",
      detail: this.message,
      errors: body.errors ?? {},
      items: body.items,
      retryAfter,
    });
  }
}

const ANSWERED_WITHIN = 20_000; // ms: an engine whose store is away gives up after 15 s, and says so

/** An engine that was not heard. */
export const silence = () =>
  new Problem(0, { code: "unreachable", detail: `the engine does not answer at ${location.host}` });

/**
 * Resolves to the response, whose body may be a stream; rejects with a `Problem`, or an AbortError when `signal` fired.
 * `within` is how many ms it may take; a connection may be dead without a word where a device slept or changed networks.
 */
export const send = (method, path, options) => exchange(method, path, options, (response) => response);

/** The same, with the answer's JSON; null for 204. */
export const call = (method, path, options) =>
  exchange(method, path, options, (response) => (response.status === 204 ? null : response.json()));

/** With `keepalive` the request is sent even if its page goes. */
async function exchange(method, path, options = {}, read) {
  const { body, token, signal, keepalive = false, headers = {}, within = ANSWERED_WITHIN } = options;
  const sentAt = Date.now();
  const over = new AbortController(); // by the caller's signal, of which a stream hears later too, or by time
  const giveUp = () => over.abort();
  if (signal?.aborted) giveUp();
  signal?.addEventListener("abort", giveUp, { once: true });
  const timer = within < Infinity ? setTimeout(giveUp, within) : undefined;
  const request = {
    method,
    signal: over.signal,
    keepalive,
    headers: { ...headers },
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    referrerPolicy: "no-referrer",
  };
  if (token) request.headers.Authorization = `Bearer ${token}`;
  if (method === "POST") {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body ?? {});
  }
  try {
    const response = await fetch(path, request);
    learn(response, sentAt);
    if (!response.ok) throw await refusal(response);
    checkType(response, headers.Accept);
    return await read(response);
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw error instanceof SyntaxError ? unreadable() : silence();
  } finally {
    clearTimeout(timer);
  }
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  return new Problem(response.status, problem ?? {}, Number(response.headers.get("Retry-After")) || null);
}

/** A proxy's page, say, that tells of its engine's absence with status 200. */
const unreadable = () =>
  new Problem(0, {
    code: "unreadable",
    detail: `the answer from ${location.host} is none of the engine's, or was cut short`,
  });

/** A stream of another type than the one that was asked for is none of the engine's. */
function checkType({ headers }, wanted) {
  if (wanted && !headers.get("Content-Type")?.startsWith(wanted)) throw unreadable();
}
