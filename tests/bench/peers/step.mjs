// CPU seconds of one event on one of many xstate actors whose state has a delayed transition, re-armed by each event.
import { createActor, createMachine } from "xstate";

const [count, times, rounds] = process.argv.slice(2).map(Number);
const machine = createMachine({
  id: "session",
  initial: "active",
  states: {
    active: {
      after: { 3600000: "expired" },
      on: { renew: { target: "active", reenter: true, actions: () => {} }, logout: "ended" },
    },
    expired: { type: "final" },
    ended: { type: "final" },
  },
});
const actors = Array.from({ length: count }, () => createActor(machine).start());
const told = [];
for (let round = -1; round < rounds; round++) {
  const before = process.cpuUsage();
  for (let i = 0; i < times; i++) actors[i % count].send({ type: "renew" });
  const { user, system } = process.cpuUsage(before);
  if (round >= 0) told.push((user + system) / 1e6 / times);
}
process.stdout.write(JSON.stringify(told), () => process.exit(0));
