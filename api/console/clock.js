// The engine's clock, learnt from the Date header of its answers: countdowns never trust this device's own.

let offset = null; // until the first answer

/** Learns from one answer. `Date` is cut to whole seconds, so half of one is added. */
export function learn(response, sentAt) {
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (!Number.isNaN(date)) offset = date + 500 - (sentAt + Date.now()) / 2;
}

/** Seconds since the epoch by the engine's clock; by this device's until it is `known`. */
export const now = () => (Date.now() + (offset ?? 0)) / 1000;

export const known = () => offset !== null;

/** `3723` -> `1:02:03`, `62` -> `1:02`; never below zero. */
export function countdown(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const two = (number) => String(number).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** `5400` -> `1 h 30 min`. */
export function spell(seconds) {
  const parts = [
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  let rest = Math.round(seconds);
  const words = parts.map(([size, unit]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count && `${count} ${unit}`;
  });
  return words.filter(Boolean).join(" ") || "0 s";
}

/** An epoch second as local time; with the day unless it is today. */
export function when(epoch) {
  const date = new Date(epoch * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return date
    .toLocaleString([], { ...(today ? {} : { day: "numeric", month: "short" }), hour: "2-digit", minute: "2-digit" })
    .replace(/\s/g, "\u00a0");
}

export const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/**
 * Runs `work` now and every `seconds` while the page is visible, whatever becomes of it; returns a function that stops
 * it.
 */
export function poll(work, seconds) {
  let stopped = false;
  let timer;
  const round = async () => {
    clearTimeout(timer);
    try {
      if (!document.hidden) await work();
    } catch (error) {
      reportError(error); // a fault of this page: the next round may do better
    }
    clearTimeout(timer); // the page may have come back into view meanwhile, and begun a round of its own
    if (!stopped) timer = setTimeout(round, seconds * 1000);
  };
  const wake = () => document.hidden || round();
  document.addEventListener("visibilitychange", wake);
  round();
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
  };
}
