// Private keys, RSA and Ed25519: read in the page, checked, named, and turned into a key that can sign but not be read out.

import { ascii, base64, fromBase64url } from "./bytes.js";
import { encode, INTEGER, join, OCTETS, OID, SEQUENCE, sequence } from "./der.js";
import { decrypt, WRONG_PASSPHRASE } from "./passphrase.js";
import { KeyRefused, PKCS1, PKCS8, privateBlock, SEALED } from "./pem.js";

export { KeyRefused };

const RSA = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]; // rsaEncryption, RFC 8017
const RSA_PSS = [...RSA.slice(0, 8), 0x0a];
const ED25519 = [0x2b, 0x65, 0x70]; // id-Ed25519, RFC 8410
const SMALLEST = 2048,
  LARGEST = 8192; // bits
const DAMAGED = "the private key is damaged: its bytes are no key";

/** The private key of a file: `{key, identity, bits}`. Throws `KeyRefused`, as `PassphraseWanted` without one. */
export async function readPrivateKey(bytes, passphrase = null) {
  const block = privateBlock(bytes);
  const der = block.encrypted ? await decrypt(block, passphrase) : block.der;
  try {
    const label = labelOf(der);
    if (!block.encrypted && label !== block.label) {
      throw new KeyRefused(`the BEGIN line does not fit the key in it, which is a ${label}`);
    }
    if (label === PKCS8 && isKind(der, ED25519)) return await readEd25519(der);
    const inner = label === PKCS1 ? der : fromPkcs8(der);
    const { modulus, exponent } = numbers(inner);
    const broken = outOfBounds(modulus, exponent);
    if (broken) throw new KeyRefused(`the RSA key is refused: ${broken}`);
    const key = await importKey(inner);
    return { key, identity: await identityOf(modulus, exponent), bits: bitLength(modulus) };
  } catch (error) {
    if (!(error instanceof RangeError || error.name === "DataError")) throw error;
    throw new KeyRefused(block.encrypted ? WRONG_PASSPHRASE : DAMAGED); // one wrong passphrase in 256 gives bytes
  } finally {
    der.fill(0);
  }
}

/** Which label these bytes should have, by their first elements. */
function labelOf(der) {
  const tags = sequence(der).map((part) => part.tag);
  const begins = (...first) => first.every((tag, place) => tags[place] === tag);
  if (begins(INTEGER, SEQUENCE, OCTETS)) return PKCS8;
  if (begins(INTEGER, INTEGER, INTEGER, INTEGER)) return PKCS1;
  if (begins(SEQUENCE, OCTETS)) return SEALED;
  throw new RangeError("no private key");
}

/** Whether a PKCS#8 PrivateKeyInfo (RFC 5208) holds a key of the algorithm. */
function isKind(der, known) {
  const [, algorithm] = sequence(der);
  const oid = sequence(encode(SEQUENCE, algorithm.body))[0];
  return oid?.tag === OID && oid.body.join() === known.join();
}

/** The RSAPrivateKey inside a PKCS#8 PrivateKeyInfo. */
function fromPkcs8(der) {
  if (isKind(der, RSA_PSS)) throw new KeyRefused("this is an RSASSA-PSS key; a plain RSA key is wanted");
  if (!isKind(der, RSA)) throw new KeyRefused("this is not an RSA key");
  return sequence(der)[2].body;
}

/** An Ed25519 key, where this browser's WebCrypto has those; whether the engine accepts any, the engine says. */
async function readEd25519(der) {
  const read = (readable) =>
    crypto.subtle.importKey("pkcs8", der, "Ed25519", readable, ["sign"]).catch((error) => {
      if (error.name !== "NotSupportedError") throw error;
      throw new KeyRefused("this is an Ed25519 key, and this browser's WebCrypto has none: take an RSA key");
    });
  const { x } = await crypto.subtle.exportKey("jwk", await read(true)); // its public half, which is in no other form
  return { key: await read(false), identity: await fingerprint("ssh-ed25519", fromBase64url(x)), bits: 256 };
}

/** Modulus and public exponent of an RSAPrivateKey (RFC 8017, A.1.2), without leading zeros. */
function numbers(inner) {
  if (labelOf(inner) !== PKCS1) throw new RangeError("no RSAPrivateKey");
  const [, modulus, exponent] = sequence(inner);
  const bare = ({ body }) => body.subarray(body[0] === 0 ? 1 : 0);
  return { modulus: bare(modulus), exponent: bare(exponent) };
}

const bitLength = (number) => number.length * 8 - Math.clz32(number[0]) + 24;

function outOfBounds(modulus, exponent) {
  const bits = bitLength(modulus);
  if (bits < SMALLEST) return `it is too small: ${bits} bits, ${SMALLEST} at least`;
  if (bits > LARGEST) return `it is too large: ${bits} bits, ${LARGEST} at most`;
  const e = exponent.reduce((sum, byte) => sum * 256 + byte, 0);
  if (e % 2 && e >= 65537 && e < 2 ** 32) return null;
  return "its public exponent is not an odd number from 65537 to 2^32 - 1";
}

/** WebCrypto reads PKCS#8 only, so the key is wrapped anew. Not extractable: it can sign, nothing else. */
async function importKey(inner) {
  const algorithm = encode(SEQUENCE, encode(OID, RSA), [0x05, 0x00]);
  const pkcs8 = encode(SEQUENCE, encode(INTEGER, [0]), algorithm, encode(OCTETS, inner));
  try {
    return await crypto.subtle.importKey("pkcs8", pkcs8, { name: "RSA-PSS", hash: "SHA-256" }, false, ["sign"]);
  } finally {
    pkcs8.fill(0);
  }
}

async function identityOf(modulus, exponent) {
  const number = (bytes) => (bytes[0] & 0x80 ? join([0], bytes) : bytes);
  return fingerprint("ssh-rsa", number(exponent), number(modulus));
}

/** OpenSSH's fingerprint, as `ssh-keygen -l` and `hatchway key list` print it. */
async function fingerprint(kind, ...parts) {
  const string = (bytes) => join([0, 0, bytes.length >> 8, bytes.length & 0xff], bytes);
  const blob = join(...[ascii(kind), ...parts].map(string));
  return `SHA256:${base64(new Uint8Array(await crypto.subtle.digest("SHA-256", blob))).replaceAll("=", "")}`;
}
