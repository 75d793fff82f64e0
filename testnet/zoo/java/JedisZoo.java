// Jedis, as ../README.md says.

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.SetParams;

class JedisZoo extends Zoo {
    private final RedisClient client;

    private JedisZoo(RedisClient client) {
        this.client = client;
    }

    public static void main(String[] words) throws Exception {
        Zoo.main("jedis", (port, setting) -> new JedisZoo(open(port, setting)), words);
    }

    private static RedisClient open(int port, String setting) {
        if (!setting.equals("safe")) {
            return RedisClient.create("127.0.0.1", port);
        }
        // It repeats nothing by itself, but gives up before an answer must have come.
        DefaultJedisClientConfig patient = DefaultJedisClientConfig.builder().timeoutMillis(5000).build();
        return RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(patient).build();
    }

    void close() { client.close(); }
    String ping() { return client.ping(); }
    String get(String k) { return client.get(k); }
    byte[] get(byte[] k) { return client.get(k); }
    String set(String k, String v) { return client.set(k, v); }
    String set(byte[] k, byte[] v) { return client.set(k, v); }
    String setEx(String k, String v, long seconds) { return client.set(k, v, SetParams.setParams().ex(seconds)); }
    String setNx(String k, String v) { return client.set(k, v, SetParams.setParams().nx()); }
    String setXx(String k, String v) { return client.set(k, v, SetParams.setParams().xx()); }
    String setXxGet(String k, String v) { return client.setGet(k, v, SetParams.setParams().xx()); }
    boolean setnx(String k, String v) { return client.setnx(k, v) == 1; }
    String getset(String k, String v) { return client.getSet(k, v); }
    String getdel(String k) { return client.getDel(k); }
    String getPx(String k, long millis) { return client.getEx(k, GetExParams.getExParams().px(millis)); }
    long append(String k, String v) { return client.append(k, v); }
    long strlen(String k) { return client.strlen(k); }
    long incr(String k) { return client.incr(k); }
    long incrBy(String k, long n) { return client.incrBy(k, n); }
    long decr(String k) { return client.decr(k); }
    long decrBy(String k, long n) { return client.decrBy(k, n); }
    long ttl(String k) { return client.ttl(k); }
    long pttl(String k) { return client.pttl(k); }
    boolean expire(String k, long seconds) { return client.expire(k, seconds) == 1; }
    boolean persist(String k) { return client.persist(k) == 1; }
    String mset(Map<String, String> pairs) {
        return client.mset(pairs.entrySet().stream().flatMap(pair -> List.of(pair.getKey(), pair.getValue()).stream()).toArray(String[]::new));
    }
    List<String> mget(String... keys) { return client.mget(keys); }
    long exists(String... keys) { return client.exists(keys); }
    long del(String... keys) { return client.del(keys); }
    void keys(String pattern) { client.keys(pattern); }

    Object raw(String... words) {
        byte[] name = words[0].getBytes(StandardCharsets.UTF_8);
        return text(client.sendCommand(() -> name, java.util.Arrays.copyOfRange(words, 1, words.length)));
    }

    private static Object text(Object answer) {
        if (answer instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        return answer instanceof List<?> items ? items.stream().map(JedisZoo::text).toList() : answer;
    }

    List<Long> pipelineIncr(List<String> keys) {
        try (Pipeline pipe = client.pipelined()) {
            keys.forEach(pipe::incr);
            return pipe.syncAndReturnAll().stream().map(n -> (Long) n).toList();
        }
    }
}
