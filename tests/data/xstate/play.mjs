// Plays sequences of [milliseconds to wait, event, proof] on a chart's config in XState's own simulated time, and
// prints the state after each step. Standard input: {config, lifetime, sequences}; output: one array a sequence.
import { readFileSync } from "node:fs";
import { SimulatedClock, createActor, setup } from "xstate";

const WINDOW = 30_000; // ms, sections 3.1 and 8

const { config, lifetime, sequences } = JSON.parse(readFileSync(0, "utf8"));

function names(key) {
  const found = Object.values(config.states).flatMap((state) => Object.values(state.on ?? {}).concat(Object.values(state.after ?? {})));
  return new Set(found.flat().flatMap((way) => way[key] ?? []));
}

function play(sequence) {
  const clock = new SimulatedClock();
  let entered = 0;
  const inTime = () => clock.now() - entered < WINDOW;
  const guards = {
    within_claim_window: inTime,
    within_decision_window: inTime,
    credentials_are_valid: ({ event }) => event.proof === "signature" || event.proof === "approval",
  };
  const unknown = [...names("guard")].filter((name) => !(name in guards));
  if (unknown.length) throw new Error(`a guard this test does not know: ${unknown}`);
  const actions = Object.fromEntries([...names("actions")].map((name) => [name, () => {}]));
  const named = Object.values(config.states).flatMap((state) => Object.keys(state.after ?? {})).filter((key) => isNaN(key));
  const delays = Object.fromEntries(named.map((name) => [name, lifetime]));
  const machine = setup({ guards, actions, delays }).createMachine(config);
  const actor = createActor(machine, { clock }).start();
  return sequence.map(([wait, type, proof]) => {
    clock.increment(wait);
    const before = actor.getSnapshot().value;
    actor.send({ type, proof });
    if (actor.getSnapshot().value !== before) entered = clock.now();
    return actor.getSnapshot().value;
  });
}

process.stdout.write(JSON.stringify(sequences.map(play)));
