// What the engine will make of a session duration, said before it is sent (section 8).

const FORM = /^(?:(\d+)h|(\d+)m(?:(\d+)s)?)$/;
const SHORTEST = 60,
  LONGEST = 24 * 3600;

/** Seconds of `30m`, `2h` or `1m0s`; null for another form; Infinity for a very long row of digits. */
export function parseDuration(text) {
  const [all, hours, minutes, seconds] = FORM.exec(text) ?? [];
  if (all === undefined) return null;
  return Number(hours ?? 0) * 3600 + Number(minutes ?? 0) * 60 + Number(seconds ?? 0);
}

export const inRange = (seconds) => seconds >= SHORTEST && seconds <= LONGEST;
