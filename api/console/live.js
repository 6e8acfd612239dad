// What the engine is doing, for MASTER: the stream of transitions beside the three charts, the occupied states lit.

import { Board } from "./board.js";
import { now } from "./clock.js";
import { byId, el, note } from "./dom.js";
import { Problem } from "./http.js";
import { attempt, current, openStream, use } from "./session.js";
import { backOff, events, inSlot } from "./streams.js";
import * as timeline from "./timeline.js";

const CHARTS = ["pairing", "session", "instance"];
const LIVE = "Live";
const MOST = 200; // lines kept
const SILENCE = 40_000; // ms: an engine that has nothing to tell sends a comment each 15 s
const boards = new Map();
const known = new Map(); // chart -> the last list of its actors, for a board that is drawn later
let connection = null; // the AbortController of the stream
let last = null; // the id of the last event seen, or of the last one before the stream was opened
let paused = false;
let held = [];

byId("stream-pause").addEventListener("click", () => hold(!paused));
document.addEventListener("visibilitychange", () => {
  // A hidden page hangs up: a browser keeps only six connections to one host. It resumes where it stopped.
  if (byId("live").hidden) return;
  if (document.hidden) connection?.abort();
  else listen();
});

export async function enter() {
  byId("live").hidden = false;
  await Promise.all(CHARTS.map(drawChart));
  if (!byId("live").hidden && !document.hidden) listen();
}

export function leave() {
  timeline.leave();
  connection?.abort();
  byId("live").hidden = true;
  byId("charts").replaceChildren();
  byId("events").replaceChildren();
  byId("events").hidden = true; // an empty list is no place to stop at by the keyboard
  byId("events-empty").hidden = false;
  boards.clear();
  known.clear();
  last = null;
  held = [];
  hold(false);
}

/** A list the engine gave: who is in which state of `chart` now. */
export function settle(chart, pairs) {
  known.set(chart, pairs);
  boards.get(chart)?.settle(pairs);
}

/** Which pairings are out: of them the engine has no list, but none lasts longer than its chart's delays. */
async function settlePairings() {
  const delays = boards.get("pairing")?.chart.delays ?? [];
  const since = now() - delays.reduce((sum, { seconds }) => sum + seconds, 0);
  const { records } = await use("GET", `/api/events/history/?chart=pairing&kind=transition&since=${since}&limit=1000`);
  settle("pairing", [...new Map(records.map(({ actor, target }) => [actor, target]))]);
}

async function drawChart(name) {
  const problem = await attempt(async () => {
    const board = new Board(await use("GET", `/api/charts/${name}/`));
    boards.set(name, board);
    if (known.has(name)) board.settle(known.get(name));
    place(boards);
    timeline.know(board.chart);
  });
  if (problem) say(problem);
}

/** Shows these boards: those of now, or those of a moment that is past. */
export function place(shown = boards) {
  byId("charts").replaceChildren(
    ...CHARTS.filter((chart) => shown.has(chart)).map((chart) => shown.get(chart).figure),
  );
}

/** Reads the stream for as long as the page is seen, and takes it up again after the last event it saw. */
async function listen() {
  connection?.abort();
  const mine = (connection = new AbortController());
  say("Connecting…");
  for (let failures = 0; !mine.signal.aborted && current(); failures += 1) {
    try {
      await inSlot(mine.signal, async () => {
        const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
        const response = await openStream("/api/events/", { headers, signal: mine.signal });
        await Promise.all(CHARTS.filter((chart) => !boards.has(chart)).map(drawChart)); // an answer may have failed
        say(LIVE);
        failures = -1;
        await settlePairings(); // what happens meanwhile the stream tells
        for await (const event of events(response, () => SILENCE)) take(event);
      });
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error instanceof Problem && error.status === 403) return say(error.message);
    }
    say("Reconnecting…");
    await backOff(Math.max(failures, 0));
  }
}

function take({ id, event, data }) {
  last = id || last;
  if (data === null) return;
  if (event === "gap")
    return show(el("li", { class: "gap" }, "Some transitions are missing here: they are older than the engine's log."));
  const record = JSON.parse(data);
  boards.get(record.chart)?.take(record);
  if (paused) held.push(record);
  else show(line(record));
}

function show(item) {
  byId("events-empty").hidden = true;
  byId("events").hidden = false;
  byId("events").prepend(item);
  if (byId("events").children.length > MOST) byId("events").lastChild.remove();
}

/** A record as an item of a list. */
export function line({ kind, chart, actor, event, source, target, time, cause, count }) {
  const at = new Date(time * 1000);
  const step =
    kind === "transition"
      ? [`${source} `, el("span", { "aria-label": "to" }, "→"), " ", el("b", {}, target)]
      : [el("b", {}, count ? `${cause} · ${count}` : (cause ?? kind))];
  return el(
    "li",
    { class: kind },
    el("time", { datetime: at.toISOString() }, at.toLocaleTimeString([], { hour12: false })),
    el("span", { class: "what" }, kind === "refusal" ? `${chart} ${event} refused` : `${chart} ${event}`),
    el("span", { class: "step" }, step),
    el("span", { class: "actor mono" }, kind === "transition" && cause ? `${actor} · ${cause}` : actor),
  );
}

function hold(still) {
  paused = still;
  byId("stream-pause").setAttribute("aria-pressed", String(still));
  byId("stream-pause").textContent = still ? "Go on" : "Pause";
  for (const record of held.splice(0)) show(line(record));
}

function say(words) {
  note(byId("live-state"), words);
  byId("live-state").classList.toggle("on", words === LIVE);
}
