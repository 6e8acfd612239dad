// A key remembered on this device, in IndexedDB: the page can't read it out, but the browser's profile holds it bare.

import { tellNothingKept } from "./site_data.js";

const NAME = "hatchway",
  STORE = "keys",
  ONLY = "remembered";

const settled = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** The open database; null where there is none and `create` is false: looking must leave nothing behind. */
async function open(create) {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => (create ? request.result.createObjectStore(STORE) : request.transaction.abort());
  try {
    return await settled(request);
  } catch (error) {
    if (error.name === "AbortError" && !create) return null;
    throw error;
  }
}

/** The remembered `{key, identity, bits, name}`, or null; also where the browser keeps nothing. */
export async function remembered() {
  const database = await open(false).catch(tellNothingKept);
  if (!database) return null;
  const found = await settled(database.transaction(STORE).objectStore(STORE).get(ONLY));
  database.close();
  return found ?? null;
}

/** Remembers one key in place of any before it. Rejects where the browser keeps nothing, or has no room. */
export async function remember(key) {
  const database = await open(true);
  await settled(database.transaction(STORE, "readwrite").objectStore(STORE).put(key, ONLY));
  database.close();
}

/** Forgets the key, database and all. */
export const forget = async () => settled(indexedDB.deleteDatabase(NAME));
