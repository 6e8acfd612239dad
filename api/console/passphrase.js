// Private keys with a passphrase: PKCS#8 under PBES2, what openssl and ssh-keygen have written for years (RFC 8018).

import { ascii } from "./bytes.js";
import { encode, INTEGER, OCTETS, OID, SEQUENCE, sequence } from "./der.js";
import { KeyRefused, SEALED } from "./pem.js";

// Object identifiers as their bytes in hexadecimal: RFC 8018, appendix C.
const PBES2 = "2a864886f70d01050d",
  PBKDF2 = "2a864886f70d01050c";
const HASHES = {
  "2a864886f70d0207": "SHA-1",
  "2a864886f70d0209": "SHA-256",
  "2a864886f70d020a": "SHA-384",
  "2a864886f70d020b": "SHA-512",
};
const AES_BITS = { "608648016503040102": 128, "608648016503040116": 192, "60864801650304012a": 256 };
export const WRONG_PASSPHRASE = "the passphrase is wrong, or the key is damaged";
const MOST_ROUNDS = 10_000_000;
const CONVERT =
  "a browser can't open the passphrase of this kind of file; convert a copy of it with" +
  " openssl pkcs8 -topk8 -in <key> -out <copy>";

/** The key has a passphrase and none was given: ask, and read again. */
export class PassphraseWanted extends KeyRefused {}

/** The PKCS#8 bytes of an encrypted block. Throws `PassphraseWanted`, and `KeyRefused` for a wrong one. */
export async function decrypt({ label, der }, passphrase) {
  if (label !== SEALED) throw new KeyRefused(CONVERT);
  if (!passphrase) throw new PassphraseWanted("the private key has a passphrase");
  const { hash, salt, rounds, bits, iv, sealed } = scheme(der);
  const secret = await crypto.subtle.importKey("raw", ascii(passphrase), "PBKDF2", false, ["deriveKey"]);
  const derivation = { name: "PBKDF2", hash, salt, iterations: rounds };
  const key = await crypto.subtle.deriveKey(derivation, secret, { name: "AES-CBC", length: bits }, false, ["decrypt"]);
  try {
    return new Uint8Array(await crypto.subtle.decrypt({ name: "AES-CBC", iv }, key, sealed));
  } catch {
    throw new KeyRefused(WRONG_PASSPHRASE);
  }
}

/** What the EncryptedPrivateKeyInfo says of its cipher (RFC 8018, A.2 to A.4). */
function scheme(der) {
  try {
    const [algorithm, sealed] = sequence(der);
    const [pbes2, parameters] = parts(algorithm);
    const [derivation, cipher] = parts(parameters);
    const [pbkdf2, settings] = parts(derivation);
    const [aes, iv] = parts(cipher);
    const [salt, rounds, ...rest] = parts(settings);
    const prf = rest.find((part) => part.tag === SEQUENCE);
    const found = {
      salt: salt.body,
      rounds: number(rounds),
      hash: prf ? HASHES[name(parts(prf)[0])] : "SHA-1",
      bits: AES_BITS[name(aes)],
      iv: iv.body,
      sealed: sealed.body,
    };
    const known =
      name(pbes2) === PBES2 && name(pbkdf2) === PBKDF2 && found.hash && found.bits && found.rounds <= MOST_ROUNDS;
    if (known && salt.tag === OCTETS && iv.tag === OCTETS && sealed.tag === OCTETS) return found;
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof TypeError)) throw error;
  }
  throw new KeyRefused(CONVERT);
}

const parts = (element) => sequence(encode(SEQUENCE, element.body));
const name = (element) =>
  element.tag === OID ? Array.from(element.body, (byte) => byte.toString(16).padStart(2, "0")).join("") : "";
const number = (element) => (element.tag === INTEGER ? element.body.reduce((sum, byte) => sum * 256 + byte, 0) : NaN);
