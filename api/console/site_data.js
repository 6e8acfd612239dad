// What the browser keeps for this page. It may be told to keep nothing: then all of it lives in this tab's memory.

import { byId } from "./dom.js";

const memory = new Map();

/** The browser keeps nothing here: says so. */
export function tellNothingKept() {
  byId("no-site-data").hidden = false;
  return null;
}

/** Carries out `work`, which uses what the browser keeps; `otherwise` where it is told to keep nothing. */
export function attempt(work, otherwise) {
  try {
    return work();
  } catch {
    tellNothingKept();
    return otherwise();
  }
}

/** The text of that name in this tab, or null. */
export const read = (name) => memory.get(name) ?? attempt(() => sessionStorage.getItem(name), () => null);

/** Keeps the text through a refresh, or, where that can't be, until then. */
export const write = (name, text) =>
  attempt(
    () => {
      sessionStorage.setItem(name, text);
      memory.delete(name);
    },
    () => memory.set(name, text),
  );

/** Keeps it no longer. */
export function remove(name) {
  memory.delete(name);
  attempt(() => sessionStorage.removeItem(name), () => {});
}
