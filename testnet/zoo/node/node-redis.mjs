// node-redis, as ../README.md says.

import { createClient, RESP_TYPES } from "redis";
import { main } from "./zoo.mjs";

await main({
  name: "node-redis",
  async open(port, setting) {
    const options = { socket: { port } };
    const client = createClient(setting === "safe" ? { ...options, disableOfflineQueue: true } : options);
    // Without a listener the process ends when a connection does.
    client.on("error", () => {});
    return client.connect();
  },
  close: (r) => r.destroy(),
  ping: (r) => r.ping(),
  get: (r, k) => r.get(k),
  getBuffer: (r, k) => r.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer }).get(k),
  set: (r, k, v) => r.set(k, v),
  setEx: (r, k, v, seconds) => r.set(k, v, { expiration: { type: "EX", value: seconds } }),
  setNx: (r, k, v) => r.set(k, v, { condition: "NX" }),
  setXx: (r, k, v) => r.set(k, v, { condition: "XX" }),
  setXxGet: (r, k, v) => r.set(k, v, { condition: "XX", GET: true }),
  setnx: (r, k, v) => r.setNX(k, v),
  getset: (r, k, v) => r.getSet(k, v),
  getdel: (r, k) => r.getDel(k),
  getPx: (r, k, ms) => r.getEx(k, { type: "PX", value: ms }),
  append: (r, k, v) => r.append(k, v),
  strlen: (r, k) => r.strLen(k),
  incr: (r, k) => r.incr(k),
  incrby: (r, k, n) => r.incrBy(k, n),
  decr: (r, k) => r.decr(k),
  decrby: (r, k, n) => r.decrBy(k, n),
  ttl: (r, k) => r.ttl(k),
  pttl: (r, k) => r.pTTL(k),
  expire: (r, k, seconds) => r.expire(k, seconds),
  persist: (r, k) => r.persist(k),
  mset: (r, pairs) => r.mSet(pairs),
  mget: (r, keys) => r.mGet(keys),
  exists: (r, keys) => r.exists(keys),
  del: (r, keys) => r.del(keys),
  keys: (r, pattern) => r.keys(pattern),
  raw: (r, words) => r.sendCommand(words),
  // What is asked in one turn of the loop is sent at once.
  pipelineIncr: (r, keys) => Promise.all(keys.map((k) => r.incr(k))),
});
