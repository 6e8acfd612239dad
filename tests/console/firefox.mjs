// Drives Debian's Firefox by WebDriver BiDi for tests/support/firefox.py. A line in is [action, ...arguments] as JSON; a
// line out is {"value": ...} or {"error": "..."}. Pages are known by the number that "open" gives.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [modules, profile, preferences] = process.argv.slice(2);
const puppeteer = createRequire(`${modules}/`)("puppeteer-core");
const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath: "/usr/bin/firefox-esr",
  headless: true,
  userDataDir: profile,
  extraPrefsFirefox: JSON.parse(preferences),
});

const PATIENCE = 45_000; // ms: a step that takes longer fails, as with Chromium (tests/support/browser.py)
const pages = [];
const faults = [];

// A tab behind another draws nothing, so nothing can be waited for there: people look at a tab, too, to see it.
async function seen(page, selector) {
  await page.bringToFront();
  return page.waitForSelector(selector, { visible: true, timeout: PATIENCE });
}

const actions = {
  async open(url) {
    const page = await browser.newPage();
    page.on("pageerror", (error) => faults.push(String(error)));
    page.on("console", (line) => {
      if (line.type() === "error" && !line.text().includes("Failed to load resource")) faults.push(line.text());
    });
    await page.goto(url);
    await seen(page, "#view-signin:not([hidden]), #view-home:not([hidden])");
    return pages.push(page) - 1;
  },
  see: async (page, selector) => void (await seen(pages[page], selector)),
  text: async (page, selector) => (await seen(pages[page], selector)).evaluate((node) => node.textContent.trim()),
  async says(page, selector, words) {
    const said = (where, what) => document.querySelector(where)?.textContent.includes(what);
    await pages[page].bringToFront();
    await pages[page].waitForFunction(said, { timeout: PATIENCE }, selector, words);
  },
  click: async (page, selector) => void (await (await seen(pages[page], selector)).click()),
  async fill(page, selector, text) {
    const field = await seen(pages[page], selector);
    await field.evaluate((node) => void (node.value = ""));
    await field.type(text);
  },
  // What is drawn over a choice is clicked by people; the choice itself has no place on the screen.
  choose: async (page, selector) => void (await pages[page].$eval(selector, (node) => node.click())),
  file: async (page, selector, path) => void (await (await pages[page].$(selector)).uploadFile(path)),
  evaluate: (page, text) => pages[page].evaluate(text),
  close: (page) => pages[page].close(),
  faults: () => faults,
};

console.log(JSON.stringify({ value: await browser.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const [action, ...rest] = JSON.parse(line);
  try {
    console.log(JSON.stringify({ value: (await actions[action](...rest)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: `${action} ${JSON.stringify(rest)}: ${error}` }));
  }
}
await browser.close();
