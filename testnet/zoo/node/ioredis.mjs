// ioredis, as ../README.md says.

import { once } from "node:events";
import Redis from "ioredis";
import { main } from "./zoo.mjs";

const safe = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 };

await main({
  name: "ioredis",
  async open(port, setting) {
    const client = setting === "safe" ? new Redis(port, safe) : new Redis(port);
    client.on("error", () => {});
    await once(client, "ready");
    return client;
  },
  close: (r) => r.disconnect(),
  ping: (r) => r.ping(),
  get: (r, k) => r.get(k),
  getBuffer: (r, k) => r.getBuffer(k),
  set: (r, k, v) => r.set(k, v),
  setEx: (r, k, v, seconds) => r.set(k, v, "EX", seconds),
  setNx: (r, k, v) => r.set(k, v, "NX"),
  setXx: (r, k, v) => r.set(k, v, "XX"),
  setXxGet: (r, k, v) => r.set(k, v, "XX", "GET"),
  setnx: (r, k, v) => r.setnx(k, v),
  getset: (r, k, v) => r.getset(k, v),
  getdel: (r, k) => r.getdel(k),
  getPx: (r, k, ms) => r.getex(k, "PX", ms),
  append: (r, k, v) => r.append(k, v),
  strlen: (r, k) => r.strlen(k),
  incr: (r, k) => r.incr(k),
  incrby: (r, k, n) => r.incrby(k, n),
  decr: (r, k) => r.decr(k),
  decrby: (r, k, n) => r.decrby(k, n),
  ttl: (r, k) => r.ttl(k),
  pttl: (r, k) => r.pttl(k),
  expire: (r, k, seconds) => r.expire(k, seconds),
  persist: (r, k) => r.persist(k),
  mset: (r, pairs) => r.mset(pairs),
  mget: (r, keys) => r.mget(keys),
  exists: (r, keys) => r.exists(keys),
  del: (r, keys) => r.del(keys),
  keys: (r, pattern) => r.keys(pattern),
  raw: (r, words) => r.call(...words),
  async pipelineIncr(r, keys) {
    const pipe = r.pipeline();
    for (const k of keys) pipe.incr(k);
    return (await pipe.exec()).map(([error, n]) => {
      if (error) throw error;
      return n;
    });
  },
});
