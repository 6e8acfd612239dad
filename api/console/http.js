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

/**
 * Resolves to the response; rejects with a `Problem`, or an AbortError when `signal` fired.
 * With `keepalive` the request is sent even if its page goes.
 */
export async function send(method, path, { body, token, signal, keepalive = false, headers = {} } = {}) {
  const sentAt = Date.now();
  const request = {
    method,
    signal,
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
  const response = await fetch(path, request).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { code: "unreachable", detail: `the engine does not answer at ${location.host}` });
  });
  learn(response, sentAt);
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Problem(response.status, problem, Number(response.headers.get("Retry-After")) || null);
}

/** The same, with the answer's JSON; null for 204. */
export async function call(method, path, options) {
  const response = await send(method, path, options);
  return response.status === 204 ? null : response.json();
}
