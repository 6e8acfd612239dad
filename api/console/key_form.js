// Sign-in by private key: the file, the duration, and whether this device remembers the key.

import { ChallengeRefused, signIn } from "./challenge.js";
import { spell } from "./clock.js";
import { byId, note } from "./dom.js";
import { inRange, parseDuration } from "./durations.js";
import { Problem } from "./http.js";
import { KeyRefused, readPrivateKey } from "./keys.js";
import { PassphraseWanted } from "./passphrase.js";
import { begin, current, discard } from "./session.js";
import * as vault from "./vault.js";

let chosen = null; // {key, identity, bits, name, remembered}
let locked = null; // {bytes, name} of a file that waits for its passphrase
let busy = false;
let asked = null; // the file that was chosen last: one that is read later, or was put back meanwhile, is let go of
let reading = null; // a key that is on its way (recalled, read, unlocked): whoever signs in meanwhile means that one

export function start() {
  const file = byId("key-file");
  const drop = byId("key-drop");
  file.addEventListener("change", () => file.files.length && wait(take(file.files[0])));
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", dropped);
  byId("key-unlock").addEventListener("click", unlock);
  byId("passphrase").addEventListener("input", () => byId("passphrase").setAttribute("aria-invalid", "false"));
  for (const id of ["key-change", "key-other"]) byId(id).addEventListener("click", chooseAnother);
  byId("key-forget").addEventListener("click", forgetKey);
  byId("lifetime").addEventListener("input", explainLifetime);
  byId("key-form").addEventListener("submit", submit);
  explainLifetime();
}

/** Shows the remembered key, if there is one and no other was chosen. */
export async function refresh() {
  note(byId("key-refusal"), "");
  if (!isSecureContext || chosen) return;
  await wait(recall());
}

async function recall() {
  const found = await vault.remembered();
  if (found && !chosen && !locked) choose({ ...found, remembered: true });
}

/** Lets go of the key. */
export function clear() {
  choose(null);
  byId("remember").checked = false;
}

function chooseAnother() {
  choose(null);
  byId("key-file").focus();
}

/** A file may be dropped anywhere: beside its place the browser would leave the page and show it. */
function dropped(event) {
  event.preventDefault();
  byId("key-drop").classList.remove("over");
  const [file] = event.dataTransfer.files;
  if (file && byId("key-form").offsetParent) wait(take(file));
}

function wait(work) {
  const mine = (reading = work.finally(() => mine === reading && (reading = null)));
  return mine;
}

/** Reads a file. Its bytes stay in this function; the input is emptied at once. */
async function take(file) {
  const mine = (asked = {});
  const bytes = new Uint8Array(await file.arrayBuffer());
  byId("key-file").value = "";
  await read(bytes, file.name, null, mine);
}

async function read(bytes, name, passphrase, mine) {
  try {
    const key = await readPrivateKey(bytes, passphrase);
    bytes.fill(0);
    if (mine !== asked) return;
    choose({ ...key, name });
    byId("key-submit").focus();
  } catch (error) {
    if (!(error instanceof KeyRefused)) throw error;
    if (mine !== asked) return;
    if (!passphrase) choose(null);
    if (error instanceof PassphraseWanted) askPassphrase(bytes, name);
    else note(byId("key-error"), `${name}: ${error.message}`);
    byId("passphrase").setAttribute("aria-invalid", String(passphrase !== null));
  }
}

function askPassphrase(bytes, name) {
  locked = { bytes, name };
  byId("key-locked").hidden = false;
  byId("key-drop").hidden = true;
  byId("key-locked-name").textContent = name;
  byId("passphrase").focus();
}

function unlock() {
  const passphrase = byId("passphrase").value;
  if (!passphrase) return byId("passphrase").focus();
  note(byId("key-error"), "");
  byId("passphrase").value = "";
  wait(read(locked.bytes, locked.name, passphrase, (asked = {})));
}

function choose(key) {
  chosen = key;
  asked = null;
  locked = null;
  note(byId("key-error"), "");
  note(byId("key-refusal"), "");
  byId("passphrase").value = "";
  byId("passphrase").setAttribute("aria-invalid", "false");
  byId("key-locked").hidden = true;
  byId("key-drop").hidden = key !== null;
  byId("key-chosen").hidden = key === null;
  byId("remember-field").hidden = Boolean(key?.remembered);
  byId("key-forget").hidden = !key?.remembered;
  if (!key) return;
  byId("key-name").textContent = key.name;
  byId("key-kind").textContent = `${kindOf(key)}${key.remembered ? ", remembered on this device" : ""}`;
  byId("key-identity").textContent = key.identity;
}

const kindOf = ({ key, bits }) => (key.algorithm.name === "Ed25519" ? "Ed25519" : `RSA ${bits}`);

async function forgetKey() {
  await vault.forget().catch(() => {}); // where nothing is kept there is nothing to forget
  choose(null);
  byId("key-file").focus();
}

/** Says what the engine will make of the duration; returns it, or null for one that it would refuse. */
function explainLifetime() {
  const text = byId("lifetime").value.trim();
  const seconds = text === "" ? 3600 : parseDuration(text);
  const hint = byId("lifetime-hint");
  if (seconds === null) hint.textContent = "A duration is a whole number of minutes or hours, such as 30m or 2h.";
  else if (inRange(seconds)) hint.textContent = `${spell(seconds)}, renewed while you use it.`;
  else hint.textContent = "Out of range, 1m to 24h: the engine will give 1 h.";
  byId("lifetime").setAttribute("aria-invalid", String(seconds === null));
  return seconds === null ? null : text || undefined;
}

async function submit(event) {
  event.preventDefault();
  await reading;
  if (busy) return;
  note(byId("key-refusal"), "");
  const lifetime = explainLifetime();
  if (locked) return unlock();
  if (!chosen) return note(byId("key-error"), "Choose a private key first.");
  if (lifetime === null) return byId("lifetime").focus();
  setBusy(true);
  const mine = chosen; // another tab's session may take it out of the form meanwhile
  try {
    const answer = await signIn(mine, lifetime);
    if (current()) await discard(answer.token);
    else if (await rememberIfAsked(mine)) await begin(answer);
    else await takeBack(answer);
  } catch (error) {
    if (!(error instanceof Problem || error instanceof ChallengeRefused)) throw error;
    note(byId("key-refusal"), error.message);
  } finally {
    setBusy(false);
  }
}

/** Whether what was asked for was done. */
async function rememberIfAsked({ key, identity, bits, name, remembered }) {
  if (remembered || !byId("remember").checked) return true;
  return vault.remember({ key, identity, bits, name }).then(
    () => true,
    () => false,
  );
}

/** The key can't be remembered: says so, and leaves no session behind. */
async function takeBack({ token }) {
  await discard(token);
  byId("remember").checked = false;
  note(byId("key-refusal"), "This browser can't remember the key, so you are not signed in. Sign in without remembering it.");
}

function setBusy(now) {
  busy = now;
  byId("key-submit").setAttribute("aria-disabled", String(now));
  byId("key-submit").textContent = now ? "Signing in…" : "Sign in";
}
