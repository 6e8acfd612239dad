// The form that starts an instance: the fields of section 2.6, one a line where a field is a list.

import { byId, el, note } from "./dom.js";
import { Problem } from "./http.js";
import { current, use } from "./session.js";

const lines = (text) => text.split("\n").filter((line) => line.trim());
const FIELDS = [
  {
    name: "image",
    label: "Image",
    hint: "A .sif file of an image folder, or docker://, oras://, library:// from a listed registry.",
    wide: true,
    required: true,
  },
  { name: "identity", label: "Name", hint: "Drawn by the engine if you leave it out." },
  { name: "command", label: "Command", hint: "One argument a line. Its end ends the instance.", read: lines },
  { name: "cpu", label: "CPU", hint: "2, 0.5 or 500m", more: true },
  { name: "memory", label: "Memory", hint: "512M or 2Gi", more: true },
  { name: "gpu", label: "GPU", hint: "all, or a count", more: true },
  { name: "env", label: "Environment", hint: "NAME=value, one a line.", read: lines, more: true },
  {
    name: "volume",
    label: "Volumes",
    hint: "source:destination, then :rw if it may be written; one a line.",
    read: lines,
    more: true,
  },
  { name: "partition", label: "Partition", hint: "Of the cluster's, by name.", more: true, ofSlurm: true },
  { name: "account", label: "Account", hint: "Whose the job is.", more: true, ofSlurm: true },
  { name: "time_limit", label: "Time limit", hint: "30m or 2h", more: true, ofSlurm: true },
  { name: "fakeroot", label: "Root inside the container (fakeroot)", read: Boolean, more: true, check: true },
];
const trimmed = (text) => text.trim();
const inputs = new Map();
let starting = false;

/** Builds the form once; `started(identity, runs)` is called after each start: it runs, or it is queued. */
export function start({ path, started }) {
  const problem = el("p", { class: "error said", id: "start-problem", role: "alert", hidden: true });
  const submit = el("button", { class: "main" }, "Start");
  const cancel = el("button", { type: "button", class: "quiet", on: { click: close } }, "Cancel");
  byId("start-form").append(
    el("div", { class: "fields" }, FIELDS.filter((field) => !field.more).map(build)),
    el(
      "details",
      { id: "start-more" },
      el("summary", {}, "Limits, environment, volumes"),
      el("div", { class: "fields three" }, FIELDS.filter((field) => field.more).map(build)),
    ),
    problem,
    el("p", { class: "actions" }, submit, cancel),
  );
  byId("start-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (starting) return;
    starting = true;
    submit.textContent = "Starting…";
    await run(path, started);
    submit.textContent = "Start";
    starting = false;
  });
  byId("start-open").addEventListener("click", () => (byId("start-form").hidden ? open() : close()));
}

/** Shows of Slurm's fields those that this engine lets a request choose. */
export function offer(names) {
  for (const { name, ofSlurm } of FIELDS) if (ofSlurm) inputs.get(name).field.hidden = !names.includes(name);
}

function build(described) {
  const { input, error } = parts(described);
  const field = described.check ? checkField(described, input, error) : textField(described, input, error);
  inputs.set(described.name, { input, error, field });
  return field;
}

function parts({ name, hint, read, check, required }) {
  const id = `start-${name}`;
  const described = hint ? `${id}-hint ${id}-error` : `${id}-error`;
  const error = el("p", { class: "error", id: `${id}-error`, hidden: true });
  const input =
    read === lines
      ? el("textarea", { id, rows: 3, spellcheck: "false", "aria-describedby": described })
      : el("input", {
          id,
          type: check ? "checkbox" : "text",
          required,
          spellcheck: "false",
          autocapitalize: "off",
          "aria-describedby": described,
        });
  return { input, error };
}

function checkField({ label }, input, error) {
  return el("div", { class: "field check wide" }, el("label", {}, input, el("span", {}, label)), error);
}

function textField({ label, hint, wide, ofSlurm }, input, error) {
  return el(
    "div",
    { class: wide ? "field wide" : "field", hidden: ofSlurm },
    el("label", { for: input.id }, label),
    input,
    hint && el("p", { class: "hint", id: `${input.id}-hint` }, hint),
    error,
  );
}

function open() {
  byId("start-form").hidden = false;
  byId("start-open").setAttribute("aria-expanded", "true");
  inputs.get("image").input.focus();
}

/** Empties the form, and shuts it: what one person typed, secrets included, is not the next one's to read. */
export function clear() {
  byId("start-form").reset();
  byId("start-more").open = false;
  complain("", {});
  close();
}

/** Shuts the form; what was typed stays for whoever typed it. */
export function close() {
  const within = byId("start-form").contains(document.activeElement);
  byId("start-form").hidden = true;
  byId("start-open").setAttribute("aria-expanded", "false");
  if (within) byId("start-open").focus();
}

async function run(path, started) {
  complain("", {});
  const asked = current()?.session;
  try {
    const items = await use("POST", path, { body: body(), within: Infinity }); // an image may be pulled first
    if (current()?.session !== asked) return; // the form is another's by now
    clear();
    started(items[1].payload, items[2].payload.pid > 0);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (current()?.session === asked) complain(error.message, error.errors);
  }
}

/** The request of section 2.6, without the fields that were left empty. */
function body() {
  const shown = FIELDS.filter(({ name }) => !inputs.get(name).field.hidden);
  const filled = shown.map(({ name, read, check }) => {
    const { input } = inputs.get(name);
    return [name, check ? input.checked : (read ?? trimmed)(input.value)];
  });
  return Object.fromEntries(filled.filter(([, value]) => value && value.length !== 0));
}

/** Shows a refusal: each wrong field's own reason beside it, anything else below. */
function complain(message, reasons) {
  const shown = ([name]) => inputs.get(name)?.field.hidden === false;
  const errors = Object.fromEntries(Object.entries(reasons).filter(shown));
  for (const [name, { input, error }] of inputs) {
    note(error, errors[name] ?? "");
    input.setAttribute("aria-invalid", String(name in errors));
    if (name in errors && FIELDS.find((field) => field.name === name).more) byId("start-more").open = true;
  }
  const first = [...inputs].find(([name]) => name in errors);
  note(byId("start-problem"), first ? "" : message);
  first?.[1].input.focus();
}
