// A small client, and its suite of 40 lines: `node client.mjs LINE`, the line that `hatchway test-engine` printed.
import assert from "node:assert";
import { createSign } from "node:crypto";
import { readFileSync } from "node:fs";

class Client {
  constructor(address, keyFile, now, sleep) {
    Object.assign(this, { address, key: readFileSync(keyFile), now, sleep });
  }
  async post(path, body, headers = {}) {
    const json = { "Content-Type": "application/json", ...headers };
    return await fetch(this.address + path, { method: "POST", headers: json, body: JSON.stringify(body) });
  }
  async signIn() {
    const { nonce } = await (await fetch(this.address + "/api/auth/challenge/")).json();
    const signature = createSign("sha256").update(nonce).sign(this.key, "base64");
    const answer = await this.post("/api/auth/verify/", { nonce, signature, lifetime: "10m" });
    if (!answer.ok) throw new Error(`sign-in: ${answer.status}`);
    this.take(await answer.json());
  }
  take(session) {
    [this.token, this.ends] = [session.token, session.expires_at];
  }
  async get(path) {
    const left = this.ends - (await this.now());
    if (left > 0 && left < 300) this.take(await (await this.ask("POST", "/api/auth/renew/")).json());
    const answer = await this.ask("GET", path);
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return await answer.json();
  }
  async ask(method, path) {
    const answer = await fetch(this.address + path, { method, headers: { Authorization: `Bearer ${this.token}` } });
    if (answer.status === 503) await this.sleep(Number(answer.headers.get("retry-after")));
    else if (answer.status === 401) await this.signIn();
    return [503, 401].includes(answer.status) ? await this.ask(method, path) : answer;
  }
  async pair(code) {
    const lines = (await (await this.post("/api/auth/pair/request/", { code })).text()).trim().split("\n");
    return JSON.parse(lines.at(-1));
  }
}

const told = JSON.parse(process.argv[2]);
const ask = async (path) => await (await fetch(told.control_address + path)).json();
const control = new Client(told.control_address, told.key_file);
const tell = async (path, fields = {}) => await (await control.post(path, fields)).json();
const advance = (seconds) => tell("/clock/advance", { seconds });
const client = new Client(told.address, told.key_file, async () => (await ask("/clock")).now, advance);
const inspect = async () => await client.get("/api/auth/inspect/");

const suite = {
  async sign_in() {
    await client.signIn();
    assert((await inspect()).valid);
  },
  async renewal() {
    const before = client.token;
    await advance(301);
    assert.equal((await inspect()).expires_at, client.ends);
    assert.notEqual(client.token, before);
    assert.equal((await ask("/records")).at(-1).event, "renew");
  },
  async expiry() {
    const headers = { Authorization: `Bearer ${client.token}` };
    await advance(601);
    assert.equal((await fetch(told.address + "/api/auth/inspect/", { headers })).status, 401);
    assert((await inspect()).valid);
  },
  async windows() {
    const late = (await tell("/pairings")).code;
    await advance(30);
    assert.equal((await client.pair(late)).detail, "invalid pairing code");
    const held = client.pair((await tell("/pairings", { answer: "late" })).code);
    while (!(await ask("/records")).some((record) => record.target === "claimed"));
    await advance(30);
    assert.equal((await held).detail, "pairing expired on approval");
    assert((await client.pair((await tell("/pairings")).code)).token);
  },
  async revoke() {
    await tell("/sessions/revoke");
    assert((await inspect()).valid);
  },
  async unavailable() {
    await tell("/faults", { unavailable: true, times: 1 });
    assert((await inspect()).valid);
  },
};
for (const [name, test] of Object.entries(suite)) {
  console.log(name);
  await test();
}
console.log("passed");
