// Elements by id and by hand. Text is only ever set as text; nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An HTML element; `on` maps event names to listeners, `false`, `null` and `undefined` leave an attribute out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG, which wants its namespace. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

const COMMAND = /(ssh-keygen [^(]*<key>|openssl [^;(]+|proxy_set_header [^;]+;)/;

/** Shows `text` in an element that is hidden while it has none; a command in it is set so that no line breaks it. */
export function note(element, text) {
  if (element.textContent !== text) {
    element.replaceChildren(...text.split(COMMAND).map((part, place) => (place % 2 ? el("code", {}, part) : part)));
  }
  element.hidden = !text;
}

/** A few words that stay on one line; longer text may wrap. */
export const unbroken = (text) => (text.length < 30 ? text.replaceAll(" ", "\u00a0") : text);

/** Says `text` to a screen reader without moving the focus. */
export function announce(text) {
  byId("announce").textContent = text;
}

/** Asks before something that can't be undone; resolves to true for yes. Escape and Cancel are no. */
export function confirm({ title, text, yes }) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  return new Promise((resolve) => {
    const answer = new AbortController();
    const listen = (id, event, value) => byId(id).addEventListener(event, () => dialog.close(value), answer);
    listen("confirm-yes", "click", "yes");
    listen("confirm-no", "click", "no");
    dialog.returnValue = "no";
    dialog.addEventListener(
      "close",
      () => {
        answer.abort();
        resolve(dialog.returnValue === "yes");
      },
      { once: true },
    );
    dialog.showModal();
    byId("confirm-no").focus();
  });
}

/** Answers an open question with no: whoever was asked is not signed in any more. */
export function dismiss() {
  if (byId("confirm").open) byId("confirm").close("no");
}

/** Keeps `list`'s children in step with `items`: one node a key, made once and updated after, so focus survives. */
export function reconcile(list, items, { key, make, update }) {
  const known = new Map([...list.children].map((node) => [node.dataset.key, node]));
  items.forEach((item, place) => {
    const name = key(item);
    const node = known.get(name) ?? make(item);
    known.delete(name);
    node.dataset.key = name;
    update(node, item);
    if (list.children[place] !== node) list.insertBefore(node, list.children[place] ?? null);
  });
  for (const node of known.values()) node.remove();
}
