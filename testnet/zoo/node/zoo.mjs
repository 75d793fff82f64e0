// What both programs share: the checks of ../README.md, said in terms of what each library is asked.

import assert from "node:assert/strict";
import readline from "node:readline";

const equal = assert.deepEqual;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// The library's `open(port, setting)` gives a connected client; its other functions take one.
export async function main(library) {
  const key = `zoo:${library.name}:`;

  const fails = async (promise, text) => {
    const error = await promise.then((got) => assert.fail(`${got} instead of an error`), (error) => error);
    assert.ok(error.message.includes(text), `${error.message} instead of an error with ${text}`);
  };

  const checks = {
    async connect(r, ports) {
      equal(await library.ping(r), "PONG");
      equal(await library.set(r, key + "shared", "here"), "OK");
      for (const port of ports.slice(1)) {
        const other = await library.open(port);
        equal(await library.get(other, key + "shared"), "here");
        library.close(other);
      }
    },
    async strings(r) {
      const k = key + "string";
      await library.del(r, [k]);
      equal(await library.get(r, k), null);
      equal(await library.set(r, k, "a"), "OK");
      equal(await library.getset(r, k, "b"), "a");
      equal(await library.append(r, k, "cd"), 3);
      equal(await library.strlen(r, k), 3);
      equal(await library.getdel(r, k), "bcd");
      equal(await library.get(r, k), null);
    },
    async integers(r) {
      const k = key + "integer";
      await library.del(r, [k]);
      equal(await library.incr(r, k), 1);
      equal(await library.incrby(r, k, 9), 10);
      equal(await library.decr(r, k), 9);
      equal(await library.decrby(r, k, 4), 5);
    },
    async expiry(r) {
      const k = key + "expiry";
      equal(await library.setEx(r, k, "v", 100), "OK");
      const [ttl, pttl] = [await library.ttl(r, k), await library.pttl(r, k)];
      assert.ok(98 <= ttl && ttl <= 100 && 98_000 < pttl && pttl <= 100_000);
      equal(await library.expire(r, k, 200), 1);
      equal(await library.persist(r, k), 1);
      equal(await library.ttl(r, k), -1);
      equal(await library.getPx(r, k, 50), "v");
      const until = Date.now() + 10_000;
      while ((await library.get(r, k)) !== null) assert.ok(Date.now() < until, "it does not expire");
      equal(await library.ttl(r, k), -2);
    },
    async conditions(r) {
      const k = key + "condition";
      await library.del(r, [k]);
      equal(await library.setXx(r, k, "a"), null);
      equal(await library.setNx(r, k, "a"), "OK");
      equal(await library.setNx(r, k, "b"), null);
      equal(await library.setXxGet(r, k, "b"), "a");
      equal(await library.setnx(r, k, "c"), 0);
      equal(await library.get(r, k), "b");
    },
    async extensions(r) {
      const k = key + "extension";
      await library.set(r, k, "a");
      equal(await library.raw(r, ["SET", k, "b", "IFEQ", "no"]), null);
      equal(await library.raw(r, ["SET", k, "b", "IFEQ", "a"]), "OK");
      const [value, version] = await library.raw(r, ["SCATTER.GETV", k]);
      equal(value, "b");
      equal(await library.raw(r, ["SCATTER.CAS", k, version, "c"]), 1);
      equal(await library.raw(r, ["SCATTER.CAS", k, version, "d"]), 0);
      await library.del(r, [k]);
      const once = ["SCATTER.ONCE", `node${process.hrtime.bigint()}`, "INCR", k];
      equal([await library.raw(r, once), await library.raw(r, once)], [1, 1]);
    },
    async pipeline(r) {
      const keys = Array.from({ length: 1000 }, (_, n) => `${key}pipeline:${n % 50}`);
      await library.del(r, keys.slice(0, 50));
      equal(await library.pipelineIncr(r, keys), keys.map((_, n) => Math.floor(n / 50) + 1));
    },
    async several_keys(r) {
      const [a, b, none] = [key + "a", key + "b", key + "none"];
      equal(await library.mset(r, { [a]: "1", [b]: "2" }), "OK");
      equal(await library.mget(r, [a, none, b]), ["1", null, "2"]);
      equal(await library.exists(r, [a, b, none, a]), 3);
      equal(await library.del(r, [a, b, none]), 2);
    },
    async errors(r) {
      const k = key + "error";
      await library.set(r, k, "text");
      await fails(library.raw(r, ["NOSUCH", "a"]), "ERR unknown command 'NOSUCH', with args beginning with: 'a' ");
      await fails(library.raw(r, ["GET"]), "ERR wrong number of arguments for 'get' command");
      await fails(library.incr(r, k), "ERR value is not an integer or out of range");
      await fails(library.keys(r, "*"), "ERR KEYS is not supported");
      equal(await library.get(r, k), "text");
    },
    async binary(r) {
      const every = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
      const k = Buffer.concat([Buffer.from(key), every]);
      equal(await library.set(r, k, every), "OK");
      equal(await library.getBuffer(r, k), every);
      equal(await library.del(r, [k]), 1);
    },
    async large(r) {
      const k = key + "large";
      equal(await library.set(r, k, "x".repeat(65536)), "OK");
      equal((await library.get(r, k)).length, 65536);
      await fails(library.set(r, k, "x".repeat(65537)), "longer than this network's limit");
      await fails(library.set(r, k, "x".repeat(1 << 20)), "longer than this network's limit");
      equal(await library.strlen(r, k), 65536);
    },
    async many_connections(r, ports) {
      const k = key + "many";
      await library.del(r, [k]);
      const count = async (n) => {
        const one = await library.open(ports[n % 3]);
        for (let i = 0; i < 10; i++) await library.incr(one, k);
        library.close(one);
      };
      await Promise.all(Array.from({ length: 32 }, (_, n) => count(n)));
      equal(await library.get(r, k), "320");
    },
  };

  const [mode, ...words] = process.argv.slice(2);
  if (mode === "checks") {
    const ports = words.map(Number);
    const r = await library.open(ports[0]);
    for (const [name, check] of Object.entries(checks)) {
      await check(r, ports).then(
        () => console.log(`ok ${name}`),
        (error) => console.log(`failed ${name}: ${error.message.replaceAll("\n", " ")}`),
      );
    }
  } else if (mode === "incr") {
    const [port, k, setting] = [Number(words[0]), words[1], words[2]];
    const r = await library.open(port, setting);
    await library.ping(r);
    console.log("ready");
    const once = ["SCATTER.ONCE", `node${process.hrtime.bigint()}`, "INCR", k];
    await (setting === "once" ? library.raw(r, once) : library.incr(r, k)).then(
      (n) => console.log(`answer ${n}`),
      (error) => console.log(`error ${error.name} ${error.message}`),
    );
  } else {
    const [port, k] = [Number(words[0]), words[1]];
    const told = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    const r = await library.open(port);
    await library.set(r, k, "v");
    console.log("ready");
    await told.next();
    const first = library.get(r, k).then((v) => `answer ${v}`, (error) => `error ${error.name} ${error.message}`);
    console.log(await Promise.race([first, sleep(1000).then(() => "waits")]));
    await told.next();
    for (;;) {
      const got = await library.get(r, k).catch(() => null);
      if (got === "v") break;
      await sleep(100);
    }
    console.log("back");
  }
  process.exit();
}
