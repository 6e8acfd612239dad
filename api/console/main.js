// Which view is shown, and why: looking, sign-in, waiting, home.

import { byId, dismiss } from "./dom.js";
import { expireIfDue, check, current, logout, onChange, renewIfDue, restore } from "./session.js";
import * as home from "./home.js";
import { takeFragment } from "./pairing.js";
import * as signin from "./signin.js";

const TITLES = {
  looking: "Hatchway",
  signin: "Sign in · Hatchway",
  waiting: "Waiting · Hatchway",
  home: `Hatchway · ${location.host}`,
};

const FAREWELLS = {
  "logging-out": "Logging out…",
  "logged-out": "You are logged out.",
  elsewhere: "You were logged out in another tab.",
  expired: "Your session has expired.",
  ended: "Your session was ended at the engine: logged out, revoked, or its key was unregistered.",
};

function show(view) {
  for (const name of Object.keys(TITLES)) byId(`view-${name}`).hidden = name !== view;
  byId("top-end").hidden = view !== "home";
  document.title = TITLES[view];
  window.scrollTo(0, 0);
  byId(`view-${view}`).querySelector("h1").focus({ preventScroll: true });
}

let shown = null; // the name of the session that the page is open for
let person = null; // the identity whose words the page's forms may still hold

/** Opens the page for a session. What another identity typed is taken out first. */
function open(session) {
  if (person !== session.identity) home.clear();
  [shown, person] = [session.session, session.identity];
  show("home");
  home.enter(session);
}

onChange((session, why, problem) => {
  if (shown !== session?.session) dismiss();
  if (session && shown === session.session) {
    home.refresh(session);
  } else if (why === "logged-out") {
    signin.say(FAREWELLS[why]);
  } else if (why === "untold") {
    signin.say(
      `This browser has forgotten the session, but the engine was not told: ${problem.message}.` +
        " It ends by itself when its time is up.",
    );
  } else if (session) {
    if (shown) home.leave(); // of a session that another tab's has replaced
    signin.leave();
    open(session);
  } else {
    home.leave();
    shown = null;
    if (why === "logging-out" || why === "elsewhere") home.clear();
    show("signin");
    signin.enter({ notice: FAREWELLS[why] });
  }
});

byId("logout").addEventListener("click", logout);

const UNUSED = "You are signed in already, so the link's pairing code was not used. To use one, log out and open its link.";

/** A code that was typed into the address: filled in, never sent by itself. */
function readFragment() {
  const code = takeFragment();
  if (code === null) return;
  if (current()) home.say(UNUSED);
  else signin.enter({ code });
}

/** What counts as use: a session past half its lifetime is then renewed. */
for (const event of ["pointerdown", "keydown"]) document.addEventListener(event, renewIfDue, { passive: true });
document.addEventListener("visibilitychange", () => document.hidden || !current() || check().then(renewIfDue));
window.addEventListener("hashchange", readFragment);
window.addEventListener("pagehide", signin.clear);
setInterval(expireIfDue, 1000);

byId("host").textContent = location.host;
const code = takeFragment();
show("looking");
signin.start(show);
const found = await restore().catch((error) => {
  reportError(error);
  return null;
});
if (found) {
  if (!shown) open(current()); // another tab's session has opened it already
  if (code !== null) home.say(UNUSED);
} else {
  show("signin");
  await signin.enter({ code, notice: found === null ? "The session of this tab could not be taken up again." : "" });
}
