// One chart as a picture, drawn from the engine's own rows; its states are lit while an actor is in them. A narrow screen
// shows the same as a list: each state with the rows that leave it (live.css chooses).

import { el, svg } from "./dom.js";

const WIDE = 1000; // pixels from which a picture takes the whole width
const AFTERGLOW = 2500; // ms a taken row and a final state stay lit

export class Board {
  /** `chart` as GET /api/charts/{name}/ gives it, layout included. */
  constructor(chart) {
    this.chart = chart;
    this.actors = new Map(); // actor -> state
    this.counted = null; // state -> how many, where nobody knows which
    this.final = new Set(chart.final);
    this.rows = chart.rows.map((row) => ({
      ...row,
      way: drawWay(row, chart),
      words: drawWords(row, chart),
      line: writeRow(row, chart),
    }));
    const drawn = chart.states.map((state) => drawState(state, chart));
    const written = chart.states.map(({ name }) => writeState(name, this.rows));
    this.states = new Map(chart.states.map(({ name }, index) => [name, [drawn[index], written[index]]]));
    this.figure = figure(
      chart,
      [...this.rows.map((row) => row.way), ...drawn, ...this.rows.map((row) => row.words)],
      written,
    );
  }

  /** A record of the stream: moves its actor, lights the row it took. */
  take({ kind, actor, event, source, target }) {
    if (kind !== "transition") return;
    const row = this.rows.find((one) => one.state === source && one.event === event && one.target === target);
    if (row) flash([row.way, row.words, row.line], "taken");
    if (this.counted) this.move(source, target);
    this.actors.set(actor, target);
    if (this.final.has(target)) {
      this.actors.delete(actor);
      flash(this.states.get(target), "lit");
    }
    this.light();
  }

  /** How many actors are in which state, at a moment that is past; `take` goes on from there. */
  show(counts) {
    this.counted = new Map(Object.entries(counts));
    this.light();
  }

  move(source, target) {
    for (const [state, change] of [[source, -1], [target, 1]])
      if (this.states.has(state) && !this.final.has(state) && state !== this.chart.initial)
        this.counted.set(state, Math.max(0, (this.counted.get(state) ?? 0) + change));
  }

  /** A list the engine gave: these are its actors and their states. */
  settle(pairs) {
    this.actors = new Map(pairs.filter(([, state]) => this.states.has(state) && !this.final.has(state)));
    this.light();
  }

  /** Says which states are occupied, to the eye and in words. */
  light() {
    const counts = this.counted ? occupied(this.counted) : new Map();
    if (!this.counted) for (const state of this.actors.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
    for (const [name, nodes] of this.states) {
      for (const node of nodes) {
        node.classList.toggle("held", counts.has(name));
        node.querySelector(".count").textContent = counts.get(name) ?? "";
      }
    }
    const words = [...counts].map(([state, count]) => `${count} ${state}`).join(", ");
    this.figure.querySelector(".now").textContent = words || "none now";
  }
}

const occupied = (counted) => new Map([...counted].filter(([, count]) => count > 0));

function flash(nodes, name) {
  for (const node of nodes) {
    node.classList.add(name);
    clearTimeout(node.timer);
    node.timer = setTimeout(() => node.classList.remove(name), AFTERGLOW);
  }
}

function figure(chart, nodes, written) {
  const title = `chart-${chart.name}`;
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${chart.width} ${chart.height}`,
      width: chart.width,
      role: "img",
      "aria-labelledby": title,
      "aria-describedby": `${title}-words`,
    },
    svg("defs", {}, arrow(chart)),
    nodes,
  );
  picture.style.minWidth = `${0.8 * chart.width}px`; // smaller can't be read: the figure scrolls
  return el(
    "figure",
    {
      class: chart.width > WIDE ? "card chart wide" : "card chart",
      "data-chart": chart.name,
      "aria-labelledby": title,
    },
    el(
      "figcaption",
      {},
      el("h3", { id: title }, chart.name),
      el("span", { class: "now soft", id: `${title}-words` }, "none now"),
    ),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": `Picture of the ${chart.name} chart` },
      picture,
    ),
    el("ol", { class: "states" }, written),
    table(chart),
  );
}

function arrow({ name }) {
  return svg(
    "marker",
    { id: `tip-${name}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0.8 7.4 4 0 7.2z", fill: "context-stroke" }),
  );
}

function drawState({ name, x, y, width, height, final }, chart) {
  const kind = name === chart.initial ? "initial" : final ? "final" : "";
  return svg(
    "g",
    { class: `state ${kind}`, "data-state": name },
    svg("rect", { x, y, width, height, rx: 10 }),
    final && svg("rect", { class: "rim", x: x + 3, y: y + 3, width: width - 6, height: height - 6, rx: 7 }),
    svg("text", { x: x + width / 2, y: y + height / 2 + 4.5 }, name),
    svg("text", { class: "count", x: x + width - 11, y: y + 13 }),
  );
}

function drawWay({ points, ours }, chart) {
  return svg("polyline", {
    class: ours ? "way ours" : "way",
    points: points.join(" "),
    "marker-end": `url(#tip-${chart.name})`,
  });
}

/** What a row waits for, or asks: "after 30 s", "[within_claim_window]", or nothing. */
function conditionOf({ state, event, guard }, { delays }) {
  const delay = delays.find((one) => one.state === state && one.event === event);
  if (delay) return `after ${typeof delay.seconds === "number" ? `${delay.seconds} s` : delay.seconds}`;
  return guard === "always" ? "" : `[${guard}]`;
}

/** A row's label, of one line or two; `label` is the middle of the last line. */
function drawWords(row, chart) {
  const {
    event,
    label: { x, y },
  } = row;
  const condition = conditionOf(row, chart);
  return svg(
    "g",
    { class: "words" },
    svg("text", { x, y: y - (condition ? 13 : 0) }, event),
    condition && svg("text", { class: "condition", x, y }, condition),
  );
}

/** A row in the list of states. */
function writeRow(row, chart) {
  const condition = conditionOf(row, chart);
  return el("li", {}, row.event, condition && el("span", { class: "soft" }, ` ${condition}`), ` → ${row.target}`);
}

/** A state in the list, with how many actors are in it and the rows that leave it. */
function writeState(name, rows) {
  const leaving = rows.filter((row) => row.state === name).map((row) => row.line);
  return el(
    "li",
    { "data-state": name },
    el("div", { class: "name" }, name, el("span", { class: "count" })),
    leaving.length > 0 && el("ul", {}, leaving),
  );
}

/** The same rows as the specification's table, for those who would rather read. */
function table({ name, rows }) {
  const head = ["State", "Event", "Condition", "Next state", "Effects"].map((title) =>
    el("th", { scope: "col" }, title),
  );
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      [row.state, row.event, row.guard, row.target, row.effects.join(", ")].map((cell) => el("td", {}, cell)),
    ),
  );
  return el(
    "details",
    {},
    el("summary", { "aria-label": `As a table: rows of the ${name} chart` }, "As a table"),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": `Rows of the ${name} chart` },
      el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)),
    ),
  );
}
