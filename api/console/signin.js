// The sign-in page: which method, and the two forms behind it.

import { byId, note } from "./dom.js";
import * as keyForm from "./key_form.js";
import * as pairForm from "./pair_form.js";

const radios = () => [...document.getElementsByName("method")];

/** Wires the forms once. `show` changes the view: a pairing has a waiting view of its own. */
export function start(show) {
  keyForm.start();
  pairForm.start(show);
  for (const radio of radios()) radio.addEventListener("change", () => choose(radio.value, { focus: false }));
  if (!isSecureContext) explainInsecure();
}

/** Shows the page: with a word on why, or with a code from the address. */
export async function enter({ notice = "", code = null } = {}) {
  say(notice);
  if (code !== null) pairForm.prefill(code);
  choose(code === null && isSecureContext ? "key" : "pair"); // before anything is waited for: a person may choose since
  await keyForm.refresh();
}

/** A word above the forms, which stay as they are. */
export const say = (notice) => note(byId("signin-notice"), notice);

/** Takes everything out of the forms; a pairing under way is given up. */
export function leave() {
  clear();
  keyForm.clear();
}

/** Takes the code out, so that no Back button shows it. */
export const clear = () => pairForm.clear();

function choose(method) {
  for (const radio of radios()) radio.checked = radio.value === method;
  byId("key-form").hidden = method !== "key" || !isSecureContext;
  byId("insecure").hidden = method !== "key" || isSecureContext;
  byId("pair-form").hidden = method !== "pair";
}

/** Plain http on a name that isn't this device's own: no WebCrypto, and the page could be forged on the way. */
function explainInsecure() {
  const { hostname, port, host } = location;
  const local = `${port || "80"}`;
  byId("insecure-host").textContent = host;
  byId("insecure-local").textContent = `http://127.0.0.1:${local}`;
  byId("insecure-tunnel").textContent = `ssh -L ${local}:127.0.0.1:${local} ${hostname}`;
}
