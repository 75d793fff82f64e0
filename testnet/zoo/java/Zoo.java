// What both programs share: the checks of ../README.md, said in terms of what each library is asked.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.LongStream;

/** One connected client of a library. */
abstract class Zoo {
    /** Connects. */
    interface Library {
        Zoo open(int port, String setting);
    }

    abstract void close();
    abstract String ping();
    abstract String get(String k);
    abstract byte[] get(byte[] k);
    abstract String set(String k, String v);
    abstract String set(byte[] k, byte[] v);
    abstract String setEx(String k, String v, long seconds);
    abstract String setNx(String k, String v);
    abstract String setXx(String k, String v);
    abstract String setXxGet(String k, String v);
    abstract boolean setnx(String k, String v);
    abstract String getset(String k, String v);
    abstract String getdel(String k);
    abstract String getPx(String k, long millis);
    abstract long append(String k, String v);
    abstract long strlen(String k);
    abstract long incr(String k);
    abstract long incrBy(String k, long n);
    abstract long decr(String k);
    abstract long decrBy(String k, long n);
    abstract long ttl(String k);
    abstract long pttl(String k);
    abstract boolean expire(String k, long seconds);
    abstract boolean persist(String k);
    abstract String mset(Map<String, String> pairs);
    abstract List<String> mget(String... keys);
    abstract long exists(String... keys);
    abstract long del(String... keys);
    abstract void keys(String pattern);
    /** A string, a number, a list of such, or null. */
    abstract Object raw(String... words);
    abstract List<Long> pipelineIncr(List<String> keys);

    private static final class Checks {
        private final Library library;
        private final String key;
        private final int[] ports;

        Checks(String name, Library library, int[] ports) {
            this.library = library;
            this.key = "zoo:" + name + ":";
            this.ports = ports;
        }

        interface Check {
            void run(Zoo r) throws Exception;
        }

        void run() {
            Zoo r = library.open(ports[0], "default");
            check(r, "connect", this::connect);
            check(r, "strings", this::strings);
            check(r, "integers", this::integers);
            check(r, "expiry", this::expiry);
            check(r, "conditions", this::conditions);
            check(r, "extensions", this::extensions);
            check(r, "pipeline", this::pipeline);
            check(r, "several_keys", this::severalKeys);
            check(r, "errors", this::errors);
            check(r, "binary", this::binary);
            check(r, "large", this::large);
            check(r, "many_connections", this::manyConnections);
        }

        private void check(Zoo r, String name, Check check) {
            try {
                check.run(r);
                System.out.println("ok " + name);
            } catch (Throwable why) {
                System.out.println("failed " + name + ": " + why);
            }
        }

        private void connect(Zoo r) {
            equal(r.ping(), "PONG");
            equal(r.set(key + "shared", "here"), "OK");
            for (int port : Arrays.copyOfRange(ports, 1, ports.length)) {
                Zoo other = library.open(port, "default");
                equal(other.get(key + "shared"), "here");
                other.close();
            }
        }

        private void strings(Zoo r) {
            String k = key + "string";
            r.del(k);
            equal(r.get(k), null);
            equal(r.set(k, "a"), "OK");
            equal(r.getset(k, "b"), "a");
            equal(r.append(k, "cd"), 3L);
            equal(r.strlen(k), 3L);
            equal(r.getdel(k), "bcd");
            equal(r.get(k), null);
        }

        private void integers(Zoo r) {
            String k = key + "integer";
            r.del(k);
            equal(List.of(r.incr(k), r.incrBy(k, 9), r.decr(k), r.decrBy(k, 4)), List.of(1L, 10L, 9L, 5L));
        }

        private void expiry(Zoo r) {
            String k = key + "expiry";
            equal(r.setEx(k, "v", 100), "OK");
            long ttl = r.ttl(k), pttl = r.pttl(k);
            equal(98 <= ttl && ttl <= 100 && 98_000 < pttl && pttl <= 100_000, true);
            equal(r.expire(k, 200), true);
            equal(r.persist(k), true);
            equal(r.ttl(k), -1L);
            equal(r.getPx(k, 50), "v");
            long until = System.nanoTime() + 10_000_000_000L;
            while (r.get(k) != null) {
                equal(System.nanoTime() < until, true);
            }
            equal(r.ttl(k), -2L);
        }

        private void conditions(Zoo r) {
            String k = key + "condition";
            r.del(k);
            equal(r.setXx(k, "a"), null);
            equal(r.setNx(k, "a"), "OK");
            equal(r.setNx(k, "b"), null);
            equal(r.setXxGet(k, "b"), "a");
            equal(r.setnx(k, "c"), false);
            equal(r.get(k), "b");
        }

        private void extensions(Zoo r) {
            String k = key + "extension";
            r.set(k, "a");
            equal(r.raw("SET", k, "b", "IFEQ", "no"), null);
            equal(r.raw("SET", k, "b", "IFEQ", "a"), "OK");
            List<?> pair = (List<?>) r.raw("SCATTER.GETV", k);
            equal(pair.get(0), "b");
            String version = (String) pair.get(1);
            equal(r.raw("SCATTER.CAS", k, version, "c"), 1L);
            equal(r.raw("SCATTER.CAS", k, version, "d"), 0L);
            r.del(k);
            String id = "java" + System.nanoTime();
            equal(r.raw("SCATTER.ONCE", id, "INCR", k), 1L);
            equal(r.raw("SCATTER.ONCE", id, "INCR", k), 1L);
        }

        private void pipeline(Zoo r) {
            List<String> keys = LongStream.range(0, 1000).mapToObj(n -> key + "pipeline:" + n % 50).toList();
            r.del(keys.subList(0, 50).toArray(String[]::new));
            equal(r.pipelineIncr(keys), LongStream.range(0, 1000).mapToObj(n -> n / 50 + 1).toList());
        }

        private void severalKeys(Zoo r) {
            String a = key + "a", b = key + "b", none = key + "none";
            equal(r.mset(Map.of(a, "1", b, "2")), "OK");
            equal(r.mget(a, none, b), Arrays.asList("1", null, "2"));
            equal(r.exists(a, b, none, a), 3L);
            equal(r.del(a, b, none), 2L);
        }

        private void errors(Zoo r) {
            String k = key + "error";
            r.set(k, "text");
            fails(() -> r.raw("NOSUCH", "a"), "ERR unknown command 'NOSUCH', with args beginning with: 'a' ");
            fails(() -> r.raw("GET"), "ERR wrong number of arguments for 'get' command");
            fails(() -> r.incr(k), "ERR value is not an integer or out of range");
            fails(() -> r.keys("*"), "ERR KEYS is not supported");
            equal(r.get(k), "text");
        }

        private void binary(Zoo r) {
            byte[] every = new byte[256];
            for (int n = 0; n < every.length; n++) {
                every[n] = (byte) n;
            }
            byte[] k = Arrays.copyOf(every, 300);
            System.arraycopy(key.getBytes(StandardCharsets.UTF_8), 0, k, 256, key.length());
            equal(r.set(k, every), "OK");
            equal(Arrays.equals(r.get(k), every), true);
        }

        private void large(Zoo r) {
            String k = key + "large";
            equal(r.set(k, "x".repeat(65536)), "OK");
            equal(r.get(k).length(), 65536);
            fails(() -> r.set(k, "x".repeat(65537)), "longer than this network's limit");
            fails(() -> r.set(k, "x".repeat(1 << 20)), "longer than this network's limit");
            equal(r.strlen(k), 65536L);
        }

        private void manyConnections(Zoo r) throws Exception {
            String k = key + "many";
            r.del(k);
            List<Throwable> failures = new ArrayList<>();
            List<Thread> threads = new ArrayList<>();
            for (int n = 0; n < 32; n++) {
                int port = ports[n % ports.length];
                Thread thread = new Thread(() -> {
                    try {
                        Zoo one = library.open(port, "default");
                        for (int i = 0; i < 10; i++) {
                            one.incr(k);
                        }
                        one.close();
                    } catch (Throwable why) {
                        synchronized (failures) {
                            failures.add(why);
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            equal(failures, List.of());
            equal(r.get(k), "320");
        }
    }

    private static void equal(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError(got + " instead of " + wanted);
        }
    }

    private static void fails(Runnable call, String text) {
        try {
            call.run();
        } catch (RuntimeException error) {
            equal(error.getMessage().contains(text) ? text : error.getMessage(), text);
            return;
        }
        throw new AssertionError("an answer instead of an error with " + text);
    }

    private static String told(RuntimeException error) {
        return "error " + error.getClass().getSimpleName() + " " + error.getMessage();
    }

    static void main(String name, Library library, String[] words) throws Exception {
        switch (words[0]) {
            case "checks" -> {
                int[] ports = Arrays.stream(words).skip(1).mapToInt(Integer::parseInt).toArray();
                new Checks(name, library, ports).run();
            }
            case "incr" -> {
                Zoo r = library.open(Integer.parseInt(words[1]), words[3]);
                r.ping();
                System.out.println("ready");
                try {
                    String[] once = {"SCATTER.ONCE", "java" + System.nanoTime(), "INCR", words[2]};
                    System.out.println("answer " + (words[3].equals("once") ? r.raw(once) : r.incr(words[2])));
                } catch (RuntimeException error) {
                    System.out.println(told(error));
                }
            }
            default -> reconnect(library.open(Integer.parseInt(words[1]), "default"), words[2]);
        }
        // Whatever the library still tries in the background.
        Runtime.getRuntime().halt(0);
    }

    private static void reconnect(Zoo r, String k) throws Exception {
        BufferedReader told = new BufferedReader(new InputStreamReader(System.in));
        r.set(k, "v");
        System.out.println("ready");
        told.readLine();
        CompletableFuture<String> first = CompletableFuture.supplyAsync(() -> {
            try {
                return "answer " + r.get(k);
            } catch (RuntimeException error) {
                return told(error);
            }
        });
        try {
            System.out.println(first.get(1, TimeUnit.SECONDS));
        } catch (TimeoutException waits) {
            System.out.println("waits");
        }
        told.readLine();
        for (;;) {
            try {
                equal(r.get(k), "v");
                System.out.println("back");
                return;
            } catch (RuntimeException error) {
                Thread.sleep(100);
            }
        }
    }
}
