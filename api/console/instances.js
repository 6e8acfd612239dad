// The list of container instances: their state, their log, starting and stopping.

import { poll, when } from "./clock.js";
import { announce, byId, confirm, el, note, reconcile, unbroken } from "./dom.js";
import { followAgain, letGo, toggleLog } from "./log.js";
import { allows } from "./permissions.js";
import { attempt, current, use, useList } from "./session.js";
import * as startForm from "./start_form.js";

const PATH = "/api/platform/singularity/instance/";
const OVER = ["stopped", "failed"];
let stop = () => {};
let tell = () => {};
let refused = {}; // the stop that was refused last, and why: told until that instance is over
let severalHosts = false;
let failed = false; // the list, when it was asked for last

startForm.start({
  path: PATH,
  started: (identity, runs) => {
    announce(runs ? `Instance ${identity} started.` : `Instance ${identity} is queued.`);
    load();
  },
});

/** Keeps the list fresh; `seen` gets it each time. */
export function enter(seen) {
  tell = seen;
  byId("instances").hidden = false;
  stop();
  stop = poll(load, 4);
}

/** Offers a start to those who may. */
export function permit() {
  byId("start-open").hidden = !allows("RUNTIME");
  if (!allows("RUNTIME")) startForm.close();
}

export function leave() {
  stop();
  byId("instances").hidden = true;
  byId("instances-list").replaceChildren();
  letGo();
  startForm.close();
}

/** Takes out what belongs to the person who was signed in. */
export function clear() {
  startForm.clear();
  refused = {};
  note(byId("instances-problem"), "");
}

async function load() {
  const problem = await attempt(list);
  if (failed && !problem) followAgain();
  failed = problem !== "";
  if (current()) note(byId("instances-problem"), problem || (refused.why ?? ""));
}

async function list() {
  const { rows: instances, first } = await useList(PATH, "instances");
  instances.sort((a, b) => a.requested_at - b.requested_at);
  tell(instances);
  severalHosts = new Set(instances.map(({ host }) => host)).size > 1;
  startForm.offer(first.may_ask ?? []);
  if (!instances.some(({ identity, state }) => identity === refused.identity && !OVER.includes(state))) refused = {};
  byId("instances-empty").hidden = instances.length > 0;
  reconcile(byId("instances-list"), instances, { key: (instance) => instance.identity, make, update });
}

function make({ identity }) {
  const log = el("div", { class: "log", id: `log-${identity}`, hidden: true });
  const open = el(
    "button",
    {
      type: "button",
      class: "quiet",
      "aria-expanded": "false",
      "aria-controls": log.id,
      "aria-label": `Log of ${identity}`,
      on: { click: () => toggleLog(open, log, identity, `${PATH}${encodeURIComponent(identity)}/log/`) },
    },
    "Log",
  );
  const halt = el(
    "button",
    {
      type: "button",
      class: "quiet danger",
      "aria-label": `Stop ${identity}`,
      on: { click: () => stopInstance(identity) },
    },
    "Stop",
  );
  return el(
    "li",
    { class: "row" },
    el(
      "div",
      { class: "row-main" },
      el("p", { class: "row-title" }, el("strong", { class: "wrap" }, identity), el("span", { class: "tag" })),
      el("p", { class: "row-facts" }),
    ),
    el("div", { class: "row-actions" }, open, halt),
    log,
  );
}

function update(row, instance) {
  const tag = row.querySelector(".row-title .tag");
  tag.textContent = instance.state;
  tag.dataset.state = instance.state;
  row.querySelector(".row-facts").textContent = facts(instance, OVER.includes(instance.state))
    .filter(Boolean)
    .map(unbroken)
    .join(" · ");
  row.querySelector(".row-actions").lastChild.hidden = OVER.includes(instance.state) || !allows("RUNTIME");
}

function facts(instance, over) {
  const { image, job, node, progress, pid, ip, started_at, ended_at, exit_code, failure } = instance;
  return [
    image,
    place(instance),
    job && `job ${job}`,
    progress,
    node && `on ${node}`,
    !over && pid && `pid ${pid}`,
    !over && ip,
    started_at && `since ${when(started_at)}`,
    ended_at && `ended ${when(ended_at)}`,
    exit_code != null && `exit code ${exit_code}`,
    failure,
  ];
}

/** The host, where there are several, or where it does not answer. */
function place({ host, host_answers }) {
  if (!host_answers) return `host ${host}, which does not answer: this is what it told last`;
  return severalHosts && `host ${host}`;
}

async function stopInstance(identity) {
  if (
    !(await confirm({
      title: `Stop ${identity}?`,
      text: "Its processes end. Its log stays readable here for as long as the engine lists it.",
      yes: "Stop",
    }))
  )
    return;
  const mayTakeMinutes = { within: Infinity };
  const end = () => use("DELETE", `${PATH}${encodeURIComponent(identity)}/`, mayTakeMinutes);
  refused = { identity, why: await attempt(end) };
  await load();
  byId("instances-title").focus();
}
