// Sign-in by private key: take a challenge, look at it before signing, send the signature (section 5).

import { ascii, base64url, fromBase64url } from "./bytes.js";
import { call } from "./http.js";

const PREFIX = "hatchway-auth-v1";
const DEFAULT_PORTS = { "http:": "80", "https:": "443" };

// By a key's algorithm, as WebCrypto calls it: what a verify calls the signature, and how WebCrypto makes it.
const WAYS = {
  "RSA-PSS": ["PS256", { name: "RSA-PSS", saltLength: 32 }],
  Ed25519: ["EdDSA", { name: "Ed25519" }],
};

/** The challenge is not one that may be signed here; nothing was sent. */
export class ChallengeRefused extends Error {}

/** The session object (section 2.2). Rejects with `ChallengeRefused` or a `Problem`. */
export async function signIn({ key, identity }, lifetime) {
  const { nonce } = await call("GET", `/api/auth/challenge/?identity=${encodeURIComponent(identity)}`);
  checkNonce(nonce, identity);
  const [algorithm, how] = WAYS[key.algorithm.name];
  const signature = await crypto.subtle.sign(how, key, ascii(nonce));
  const body = { nonce, signature: base64url(new Uint8Array(signature)), algorithm, lifetime, identity };
  return call("POST", "/api/auth/verify/", { body });
}

/**
 * Only a string with our prefix, for this key, that names the address dialled, is ever signed: a signature can then
 * neither be relayed to another engine nor mean anything elsewhere. Throws `ChallengeRefused`.
 */
export function checkNonce(nonce, identity) {
  const parts = typeof nonce === "string" ? nonce.split(".") : [];
  const [host, whose, ...rest] = parts.slice(1).map(fromBase64url);
  if (parts[0] !== PREFIX || parts.length !== 6 || !host || !whose || rest.includes(null)) {
    throw new ChallengeRefused(`refused to sign: what ${location.host} sent is not an engine's challenge`);
  }
  const text = (bytes) => new TextDecoder().decode(bytes);
  if (!dialled().includes(text(host))) {
    throw new ChallengeRefused(
      `refused to sign: the challenge is for ${text(host) || "another host"}, and ${location.host} was dialled; ` +
        "where that is a proxy, mend its configuration with: proxy_set_header Host $http_host;",
    );
  }
  if (text(whose) !== identity) throw new ChallengeRefused("refused to sign: the challenge is for another key");
}

/** The address of this page as a Host header may spell it. */
function dialled() {
  const { host, port, protocol } = location;
  return port ? [host] : [host, `${host}:${DEFAULT_PORTS[protocol]}`];
}
