// The little of DER that an RSA key needs: tags, definite lengths, integers. X.690, section 8 and 10.

export const SEQUENCE = 0x30,
  INTEGER = 0x02,
  OCTETS = 0x04,
  OID = 0x06;

/** One element of `bytes` at `at`: `{tag, body, end}`; throws a RangeError if it does not fit. */
function element(bytes, at) {
  const short = bytes[at + 1];
  const width = short < 0x80 ? 0 : short - 0x80;
  if (short === undefined || short === 0x80 || width > 4) throw new RangeError("a length that DER does not have");
  const from = at + 2 + width;
  const length = width ? bytes.slice(at + 2, from).reduce((sum, byte) => sum * 256 + byte, 0) : short;
  if (from + length > bytes.length) throw new RangeError("cut short");
  return { tag: bytes[at], body: bytes.subarray(from, from + length), end: from + length };
}

/** Every element of `bytes`, in order; throws if anything is left over. */
export function elements(bytes) {
  const found = [];
  for (let at = 0; at < bytes.length; at = found.at(-1).end) found.push(element(bytes, at));
  return found;
}

/** The elements of the one sequence that `bytes` is; throws if it is something else. */
export function sequence(bytes) {
  const [outer, ...more] = elements(bytes);
  if (outer?.tag !== SEQUENCE || more.length) throw new RangeError("not one sequence");
  return elements(outer.body);
}

/** An element: `tag`, its length, its parts joined. */
export function encode(tag, ...parts) {
  const body = join(...parts);
  if (body.length < 0x80) return join([tag, body.length], body);
  const length = [];
  for (let rest = body.length; rest; rest = Math.floor(rest / 256)) length.unshift(rest % 256);
  return join([tag, 0x80 + length.length, ...length], body);
}

/** Byte strings one after the other. */
export function join(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => {
    whole.set(part, at);
    return at + part.length;
  }, 0);
  return whole;
}
