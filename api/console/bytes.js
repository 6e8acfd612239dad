// Bytes and their spellings.

/** Base64 without line ends; `=` as padding. */
export const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/** base64url without padding, as in JWTs (RFC 7515). */
export const base64url = (bytes) => base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** The bytes of base64 text; throws a DOMException if it is none. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** The bytes of base64url text in its one canonical spelling; null for any other. */
export function fromBase64url(text) {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) return null;
  const bytes = fromBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  return base64url(bytes) === text ? bytes : null;
}

export const ascii = (text) => new TextEncoder().encode(text);
