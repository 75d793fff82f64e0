"""redis-py, as ../README.md says."""

import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

KEY = "zoo:redis-py:"


def client(port, setting="default"):
    if setting == "safe":
        return redis.Redis(port=port, retry=Retry(NoBackoff(), 0))
    return redis.Redis(port=port)


def equal(got, wanted):
    assert got == wanted, f"{got!r} instead of {wanted!r}"


def fails(call, text):
    try:
        got = call()
    except redis.ResponseError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{got!r} instead of an error with {text!r}")


def connect(r, ports):
    equal(r.ping(), True)
    equal(r.set(KEY + "shared", "here"), True)
    for port in ports[1:]:
        equal(client(port).get(KEY + "shared"), b"here")


def strings(r, _):
    k = KEY + "string"
    r.delete(k)
    equal(r.get(k), None)
    equal(r.set(k, "a"), True)
    equal(r.getset(k, "b"), b"a")
    equal(r.append(k, "cd"), 3)
    equal(r.strlen(k), 3)
    equal(r.getdel(k), b"bcd")
    equal(r.get(k), None)


def integers(r, _):
    k = KEY + "integer"
    r.delete(k)
    equal([r.incr(k), r.incrby(k, 9), r.decr(k), r.decrby(k, 4)], [1, 10, 9, 5])


def expiry(r, _):
    k = KEY + "expiry"
    equal(r.set(k, "v", ex=100), True)
    assert 98 <= r.ttl(k) <= 100 and 98_000 < r.pttl(k) <= 100_000
    equal(bool(r.expire(k, 200)), True)
    equal(bool(r.persist(k)), True)
    equal(r.ttl(k), -1)
    equal(r.getex(k, px=50), b"v")
    until = time.monotonic() + 10
    while r.get(k) is not None:
        assert time.monotonic() < until, "it does not expire"
    equal(r.ttl(k), -2)


def conditions(r, _):
    k = KEY + "condition"
    r.delete(k)
    equal(r.set(k, "a", xx=True), None)
    equal(r.set(k, "a", nx=True), True)
    equal(r.set(k, "b", nx=True), None)
    equal(r.set(k, "b", xx=True, get=True), b"a")
    equal(bool(r.setnx(k, "c")), False)
    equal(r.get(k), b"b")


def extensions(r, _):
    k = KEY + "extension"
    r.set(k, "a")
    equal(r.execute_command("SET", k, "b", "IFEQ", "no"), None)
    assert r.execute_command("SET", k, "b", "IFEQ", "a") in (True, b"OK")
    value, version = r.execute_command("SCATTER.GETV", k)
    equal(value, b"b")
    equal(r.execute_command("SCATTER.CAS", k, version, "c"), 1)
    equal(r.execute_command("SCATTER.CAS", k, version, "d"), 0)
    r.delete(k)
    once = ("SCATTER.ONCE", f"py{time.time_ns()}", "INCR", k)
    equal([r.execute_command(*once) for _ in range(2)], [1, 1])


def pipeline(r, _):
    keys = [f"{KEY}pipeline:{n}" for n in range(50)]
    r.delete(*keys)
    with r.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.incr(keys[n % 50])
        equal(pipe.execute(), [n // 50 + 1 for n in range(1000)])


def several_keys(r, _):
    a, b, none = KEY + "a", KEY + "b", KEY + "none"
    equal(r.mset({a: "1", b: "2"}), True)
    equal(r.mget(a, none, b), [b"1", None, b"2"])
    equal(r.exists(a, b, none, a), 3)
    equal(r.delete(a, b, none), 2)


def errors(r, _):
    k = KEY + "error"
    r.set(k, "text")
    fails(lambda: r.execute_command("NOSUCH", "a"), "unknown command 'NOSUCH', with args beginning with: 'a' ")
    fails(lambda: r.execute_command("GET"), "wrong number of arguments for 'get' command")
    fails(lambda: r.incr(k), "value is not an integer or out of range")
    fails(lambda: r.keys("*"), "KEYS is not supported")
    equal(r.get(k), b"text")


def binary(r, _):
    every = bytes(range(256))
    k = KEY.encode() + every
    equal(r.set(k, every), True)
    equal(r.get(k), every)
    equal(r.delete(k), 1)


def large(r, _):
    k = KEY + "large"
    equal(r.set(k, b"x" * 65536), True)
    equal(len(r.get(k)), 65536)
    fails(lambda: r.set(k, b"x" * 65537), "longer than this network's limit")
    fails(lambda: r.set(k, b"x" * (1 << 20)), "longer than this network's limit")
    equal(r.strlen(k), 65536)


def many_connections(r, ports):
    k = KEY + "many"
    r.delete(k)
    pools = [client(port) for port in ports]
    failures = []

    def count(n):
        try:
            for _ in range(10):
                pools[n % 3].incr(k)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=count, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failures, [])
    equal(r.get(k), b"320")


CHECKS = [
    connect, strings, integers, expiry, conditions, extensions, pipeline, several_keys, errors, binary, large,
    many_connections,
]


def checks(ports):
    r = client(ports[0])
    for check in CHECKS:
        try:
            check(r, ports)
            print("ok", check.__name__, flush=True)
        except Exception as error:
            print(f"failed {check.__name__}: {type(error).__name__}: {error}", flush=True)


def incr(port, key, setting):
    r = client(port, setting)
    r.ping()
    print("ready", flush=True)
    try:
        n = r.execute_command("SCATTER.ONCE", f"py{time.time_ns()}", "INCR", key) if setting == "once" else r.incr(key)
        print("answer", n)
    except redis.RedisError as error:
        print("error", type(error).__name__, error)


def reconnect(port, key):
    r = client(port)
    r.set(key, "v")
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        print("answer", r.get(key), flush=True)
    except redis.RedisError as error:
        print("error", type(error).__name__, error, flush=True)
    sys.stdin.readline()
    while True:
        try:
            equal(r.get(key), b"v")
            print("back")
            return
        except redis.RedisError:
            time.sleep(0.1)


mode, arguments = sys.argv[1], sys.argv[2:]
if mode == "checks":
    checks([int(port) for port in arguments])
elif mode == "incr":
    incr(int(arguments[0]), *arguments[1:])
else:
    reconnect(int(arguments[0]), arguments[1])
