// The past on the same charts, for MASTER: a moment is picked, the charts show how things stood, and records are stepped
// through or played: all of them, or those that a search finds.

import { Board } from "./board.js";
import { now } from "./clock.js";
import { byId, el, note } from "./dom.js";
import { Problem } from "./http.js";
import { line, place } from "./live.js";
import { draw } from "./plot.js";
import { use } from "./session.js";

const PAGE = 200; // records asked for at once
const SHOWN = 12; // of those up to the moment
const READ_WITHIN = 120_000; // ms: a week of a busy engine is long to read
const LONGEST = 1500; // ms that playing waits between two records at most
const charts = new Map(); // as GET /api/charts/{name}/ gives them
let boards = new Map();
let plot = null;
let page = { records: [], states: {}, next: null };
let at = 0; // how many records of the page have been taken
let turns = 0; // a later question makes earlier answers stale
let playing = null;
let going = null; // the latest way to a moment, and the steps asked for behind it

byId("past-open").addEventListener("click", () => (byId("past").hidden ? enter() : leave()));
byId("past-span").addEventListener("change", () => (going = overview()));
byId("past-moment").addEventListener("change", () => go(fromSlider()));
byId("past-step").addEventListener("click", () => hold(step));
byId("past-back").addEventListener("click", () => hold(back));
byId("past-play").addEventListener("click", () => (playing === null ? play() : stop()));
byId("past-search").addEventListener("submit", (event) => event.preventDefault());
byId("past-search").addEventListener("change", () => plot && go(plot.since));

/** A chart to show the past on. */
export function know(chart) {
  charts.set(chart.name, chart);
}

async function enter() {
  byId("past").hidden = false;
  byId("past-open").setAttribute("aria-expanded", "true");
  byId("past-open").textContent = "Back to now";
  boards = new Map([...charts].map(([name, chart]) => [name, new Board(chart)]));
  place(boards);
  await overview();
}

export function leave() {
  stop();
  turns += 1;
  plot = null;
  page = { records: [], states: {}, next: null };
  for (const id of ["past-plot", "past-events"]) byId(id).replaceChildren();
  byId("past-events").hidden = true;
  byId("past-search").reset();
  if (byId("past").hidden) return;
  byId("past").hidden = true;
  byId("past-open").setAttribute("aria-expanded", "false");
  byId("past-open").textContent = "The past";
  place();
}

/** Draws the plot of the span that is chosen, and goes to its middle. */
async function overview() {
  stop();
  const span = Number(byId("past-span").value);
  const told = await ask(`/api/events/overview/?since=${now() - span}&until=${now()}&points=120`);
  if (!told) return;
  plot = draw(told, go);
  byId("past-plot").replaceChildren(...plot.parts);
  await go(plot.until - span / 2);
}

/** What is searched for, as the query has it: an actor, identity or address, and a kind of record. */
function sought() {
  const given = { [byId("past-by").value]: byId("past-text").value.trim(), kind: byId("past-kind").value };
  return Object.entries(given).filter(([, text]) => text);
}

/** The charts as they stood at that moment. An actor is shown from its beginning, whenever that was. */
function go(moment) {
  stop();
  return (going = arrive(moment));
}

async function arrive(moment) {
  if (!plot) return;
  const whole = sought().some(([name]) => name === "actor");
  const told = await records(whole ? {} : { since: moment });
  if (!told) return;
  show(told, moment);
  const whom = byId("past-text").value.trim();
  if (sought().length && !told.records.length)
    note(byId("past-now"), `No ${byId("past-kind").selectedOptions[0].text.replace("all ", "")}${whom && ` of ${whom}`}.`);
}

/** The first page from there on that has a record, or the last one; nothing where a later question came. */
async function records(from) {
  for (let next = from; ; ) {
    const query = new URLSearchParams({ limit: PAGE, states: true, ...Object.fromEntries(sought()), ...next });
    const told = await ask(`/api/events/history/?${query}`);
    if (!told || told.records.length || told.next === null) return told;
    next = { after: told.next };
  }
}

function show(told, moment) {
  page = told;
  at = 0;
  tell(moment);
}

/** Everything that stands for the moment: marks, charts, records. */
function tell(moment) {
  const searched = sought().length > 0; // then the charts show what was found alone
  for (const [name, board] of boards) board.show(searched ? {} : (page.states[name] ?? {}));
  const past = page.records.slice(0, at);
  const last = past.pop();
  for (const { kind, chart, source, target } of past)
    if (kind === "transition") boards.get(chart)?.move(source, target);
  if (last) boards.get(last.chart)?.take(last);
  mark(moment);
}

function mark(moment) {
  plot.mark(moment);
  byId("past-moment").value = String(Math.round((1000 * (moment - plot.since)) / (plot.until - plot.since)));
  const clock = new Date(moment * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
  byId("past-moment").setAttribute("aria-valuetext", clock);
  note(byId("past-now"), page.records[at] ? clock : `${clock}: nothing more has happened.`);
  byId("past-events").hidden = at === 0;
  byId("past-events").replaceChildren(...page.records.slice(Math.max(0, at - SHOWN), at).reverse().map(line));
}

const fromSlider = () => plot.since + (Number(byId("past-moment").value) / 1000) * (plot.until - plot.since);

/** One record on; whether there was one. */
async function step() {
  if (at === page.records.length && !(await turn(page.next))) return false;
  const record = page.records[at];
  if (!record) return false;
  at += 1;
  boards.get(record.chart)?.take(record);
  mark(record.time);
  return true;
}

async function back() {
  if (at === 0) {
    const first = page.records[0]?.seq;
    if (!first || first === 1 || sought().length || !(await turn(Math.max(0, first - 1 - PAGE)))) return;
    at = page.records.length;
  }
  at -= 1;
  tell((page.records[at - 1] ?? page.records[at]).time);
}

/** The page after that number. */
async function turn(after) {
  if (after === null || after === undefined) return false;
  const told = await records({ after });
  if (!told?.records.length) return false;
  page = told;
  at = 0;
  return true;
}

async function play() {
  const mine = (playing = {});
  byId("past-play").setAttribute("aria-pressed", "true");
  byId("past-play").textContent = "Stop";
  await going;
  for (let before = null; playing === mine; before = page.records[at - 1]?.time ?? before) {
    const next = page.records[at];
    const wait = next && before !== null ? (1000 * (next.time - before)) / Number(byId("past-speed").value) : 0;
    await new Promise((done) => setTimeout(done, Math.max(20, Math.min(wait, LONGEST))));
    if (playing === mine && !(await step())) stop();
  }
}

function stop() {
  playing = null;
  byId("past-play").setAttribute("aria-pressed", "false");
  byId("past-play").textContent = "Play";
}

/** A step, taken where the way before it leads, however long the engine's answers take. */
function hold(work) {
  stop();
  return (going = Promise.resolve(going).then(work, work));
}

/** The engine's answer; nothing where a later question came, or where it refuses, which is said. */
async function ask(path) {
  const mine = (turns += 1);
  try {
    const told = await use("GET", path, { within: READ_WITHIN });
    return mine === turns ? told : null;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    note(byId("past-now"), error.message);
    return null;
  }
}
