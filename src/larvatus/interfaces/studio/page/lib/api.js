// The server: api.post("/v1/fill", {texts: ["…"]}), api.get("/v1/models").
// A failed request is an ApiError whose message can be shown as it is; a lost connection is announced and watched.

import { studioToken } from "./token.js";

const KEY = "larvatus-key";
const WATCH_MS = 2000;
const BEAT_MS = 10_000;
const MOST_WAIT_S = 5;
const TRIES = 3;

export class ApiError extends Error {
  constructor(message, { status = 0, type = "error" } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.type = type;
  }
}

/** Whether an error only means that a newer request replaced this one. */
export const isAbort = (error) => error?.name === "AbortError";

const listeners = new Set();
let state = "there"; // there, gone
let watching = 0;

/** Calls listener("gone") and listener("there") as the server goes and comes back. */
export function onConnection(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function announce(next) {
  if (next === state) return;
  state = next;
  for (const listener of listeners) listener(next);
}

function watch() {
  clearTimeout(watching);
  watching = setTimeout(checkConnection, WATCH_MS);
}

/** Checks whether the server is there, and repeats the check while it is not. */
export async function checkConnection() {
  clearTimeout(watching);
  try {
    const answer = await fetch("/v1/models", { headers: headers(), cache: "no-store" });
    if (answer.status === 503 || answer.status === 502) throw new Error("not yet");
    announce("there");
  } catch {
    announce("gone");
    watch();
  }
}

/** Checks now and then whether the server is there, so that the page reports it before anybody clicks. */
export function watchConnection() {
  setInterval(() => document.visibilityState === "visible" && state === "there" && checkConnection(), BEAT_MS);
}

/** The key that requests carry, where the server wants one; for this tab only. */
export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

function headers(json = false) {
  const key = sessionStorage.getItem(KEY);
  const token = json ? studioToken() : ""; // only what writes wants it
  return { ...(json ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}), ...(token ? { "X-Studio-Token": token } : {}) };
}

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

async function once(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (isAbort(error)) throw error;
    announce("gone");
    watch();
    throw new ApiError("The server does not answer. The page keeps trying.", { type: "gone" });
  }
}

/** A request; one that the server is too busy for is tried again when the server says so. */
async function request(path, options) {
  for (let round = 1; ; round++) {
    const answer = await once(path, options);
    if (answer.ok) return answer;
    const wait = Number(answer.headers.get("Retry-After"));
    if (answer.status === 429 && round < TRIES && wait <= MOST_WAIT_S) {
      await pause(Math.max(wait, 0.5), options.signal);
      continue;
    }
    throw await refusal(answer);
  }
}

async function refusal(answer) {
  let error = {};
  try {
    error = (await answer.json())?.error ?? {};
  } catch {
    // The page of a proxy is not JSON: only the status is shown.
  }
  if (answer.status === 502 || answer.status === 503) {
    announce("gone");
    watch();
  }
  const message = typeof error.message === "string" ? error.message : `The server answered ${answer.status} ${answer.statusText}.`;
  return new ApiError(message, { status: answer.status, type: error.type });
}

async function read(answer) {
  try {
    return await answer.json();
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError("The answer ended early; try again.", { type: "cut" });
  }
}

export const api = {
  async get(path, { signal } = {}) {
    return read(await request(path, { headers: headers(), signal, cache: "no-store" }));
  },
  async post(path, body, { signal } = {}) {
    return read(await request(path, { method: "POST", headers: headers(true), body: JSON.stringify(body), signal }));
  },
  async put(path, body, { signal } = {}) {
    return read(await request(path, { method: "PUT", headers: headers(true), body: JSON.stringify(body), signal }));
  },
  async delete(path, { signal } = {}) {
    return read(await request(path, { method: "DELETE", headers: headers(), signal }));
  },
};

/** The single item of an answer {results: [item]}; an item that failed is thrown. */
export function onlyItem(answer) {
  const item = answer.results?.[0];
  if (!item) throw new ApiError("The answer holds no result.");
  if (item.error) throw new ApiError(item.error.message, { type: item.error.type });
  return item;
}

/** Runs a task with a signal that the next run, or `.stop()`, aborts: only the newest answer counts. */
export function newest() {
  let current = null;
  const run = async (task) => {
    current?.abort();
    const mine = (current = new AbortController());
    const result = await task(mine.signal);
    mine.signal.throwIfAborted();
    return result;
  };
  run.stop = () => current?.abort();
  return run;
}
