// Text to key bytes: the one PEM block of a key file, or the one reason why not. The sentences are the command's own.

import { base64, fromBase64 } from "./bytes.js";

const LARGEST_FILE = 65536;
const MARK = /-----BEGIN ([A-Z0-9 ]{1,40})-----/g;
const BLOCK = /-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----/s;
const HEADERS = /^\s*((?:[A-Za-z-]+:[^\n]*\n)+)\s*\n/;
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/;
const SSH_LINE = /^ssh-rsa[ \t]+[A-Za-z0-9+/=]+(?:[ \t]+.*)?$/;
const SSH_INSIDE = /(?:^|\s)ssh-rsa[ \t]/;
const PUBLIC = ["PUBLIC KEY", "RSA PUBLIC KEY"];
const GIVEN_PUBLIC = "this is a public key; give the private one";
export const PKCS1 = "RSA PRIVATE KEY",
  PKCS8 = "PRIVATE KEY",
  SEALED = "ENCRYPTED PRIVATE KEY";

const KINDS = {
  "OPENSSH PRIVATE KEY":
    "this is an OpenSSH-format private key, and PKCS#1 or PKCS#8 PEM is wanted; convert a copy of it with" +
    " ssh-keygen -p -m PEM -f <key> (RSA only; it rewrites in place, so copy first)",
  "EC PRIVATE KEY": "this is not an RSA key but an EC one",
  "DSA PRIVATE KEY": "this is not an RSA key but a DSA one",
  CERTIFICATE: "this is a certificate; take the key out with openssl x509 -pubkey -noout",
};

/** A file that isn't taken as a key, for the one reason that `message` names. */
export class KeyRefused extends Error {}

/** The private key's block in a file's bytes: `{label, der, encrypted}`. Throws `KeyRefused`. */
export function privateBlock(bytes) {
  const text = textOf(bytes);
  const labels = [...text.matchAll(MARK)].map((mark) => mark[1]);
  if (!labels.length && SSH_LINE.test(text.trim())) throw new KeyRefused(GIVEN_PUBLIC);
  if (!labels.length) throw new KeyRefused("the file holds no key in PEM form");
  if (labels.length > 1 || SSH_INSIDE.test(text))
    throw new KeyRefused("the file holds more than one key or certificate; keep one");
  const [label] = labels;
  if (Object.hasOwn(KINDS, label)) throw new KeyRefused(KINDS[label]);
  const block = BLOCK.exec(text); // text around it is explanation and means nothing (RFC 7468, 5.2)
  if (!block) throw new KeyRefused("the key is cut short: its END line is missing");
  const headers = HEADERS.exec(block[2]);
  const der = bytesOf(block[2].slice(headers?.[0].length ?? 0).replace(/\s+/g, ""));
  if (PUBLIC.includes(label)) throw new KeyRefused(GIVEN_PUBLIC);
  if (![PKCS1, PKCS8, SEALED].includes(label)) throw new KeyRefused(`the file holds no private key but a ${label}`);
  return { label, der, encrypted: label === SEALED || /ENCRYPTED/.test(headers?.[1] ?? "") };
}

function textOf(bytes) {
  if (bytes.length > LARGEST_FILE) throw new KeyRefused("the file is larger than 64 KiB: not a key file");
  const begins = (...first) => first.every((byte, place) => bytes[place] === byte);
  if (begins(0xff, 0xfe) || begins(0xfe, 0xff))
    throw new KeyRefused("the file is UTF-16 text; save it as ASCII or UTF-8");
  if (begins(0x30) && bytes[1] >= 0x80)
    throw new KeyRefused("the file is DER, not PEM; convert it with openssl (-inform DER)");
  const text = decoded(bytes);
  if (text === null || CONTROLS.test(text)) throw new KeyRefused("the file is not text: no PEM file");
  if (!text.trim()) throw new KeyRefused("the file is empty");
  return text.replace(/\r\n?/g, "\n");
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes); // a byte order mark is taken off
  } catch {
    return null;
  }
}

/** The bytes of base64 in its one canonical spelling. */
function bytesOf(text) {
  const refused = new KeyRefused("the key is damaged: its base64 does not decode");
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text) || text.length % 4) throw refused;
  const bytes = fromBase64(text);
  if (base64(bytes) !== text) throw refused;
  return bytes;
}
