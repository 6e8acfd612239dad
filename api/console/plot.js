// Sign-ins, refusals and live sessions over time, as a picture in which a moment can be picked.

import { el, svg } from "./dom.js";

const WIDTH = 720;
const HEIGHT = 96; // of the drawing, which is stretched to the room there is

const KEY = { "sign-ins": "sign-ins", refusals: "refusals", alive: "live sessions" };

/** The picture of an overview; `pick` is called with the epoch second that was pointed at. */
export function draw(plot, pick) {
  const { since, step, sign_ins: signIns, refusals, sessions } = plot;
  const until = since + step * signIns.length;
  const tallest = Math.max(1, ...signIns.map((count, place) => count + refusals[place]));
  const most = Math.max(1, ...sessions);
  const wide = WIDTH / signIns.length;
  const room = HEIGHT - 4;
  const bar = (name, place, from, count) =>
    count > 0 &&
    svg("rect", {
      class: name,
      x: place * wide + wide * 0.1,
      y: HEIGHT - (room * (from + count)) / tallest,
      width: wide * 0.8,
      height: (room * count) / tallest,
    });
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, x1: WIDTH, x2: WIDTH });
  const picture = svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": words(plot, until),
    },
    signIns.map((count, place) => bar("sign-ins", place, 0, count)),
    refusals.map((count, place) => bar("refusals", place, signIns[place], count)),
    svg("polyline", {
      class: "alive",
      points: sessions.map((count, place) => `${(place + 0.5) * wide},${HEIGHT - (room * count) / most}`).join(" "),
    }),
    cursor,
  );
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left) / box.width) * signIns.length);
    pick(since + step * Math.max(0, Math.min(place, signIns.length - 1))); // where what the bar counts begins
  });
  return {
    parts: [
      picture,
      el(
        "p",
        { class: "plot-times", "aria-hidden": "true" },
        [since, (since + until) / 2, until].map((moment) => el("span", {}, label(moment, until - since))),
      ),
      el(
        "p",
        { class: "plot-key" },
        ["sign-ins", "refusals", "alive"].map((name) => el("span", { class: name }, KEY[name])),
      ),
    ],
    since,
    until,
    /** Sets the mark of the moment. */
    mark(moment) {
      const x = Math.max(0, Math.min(WIDTH, ((moment - since) / (until - since)) * WIDTH));
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
    },
  };
}

function words({ since, sign_ins: signIns, refusals, sessions }, until) {
  const sum = (series) => series.reduce((one, other) => one + other, 0);
  const most = Math.max(0, ...sessions);
  return `From ${label(since, until - since)} to ${label(until, until - since)}: ${sum(signIns)} sign-ins, ${sum(refusals)} refusals, at most ${most} live sessions`;
}

function label(moment, span) {
  const day = span > 86_400 ? { day: "numeric", month: "short" } : {};
  return new Date(moment * 1000).toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit" });
}
