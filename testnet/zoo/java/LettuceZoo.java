// Lettuce, as ../README.md says.

import io.lettuce.core.ClientOptions;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

class LettuceZoo extends Zoo {
    // Its threads are meant to be shared by all connections.
    private static final RedisClient LIBRARY = RedisClient.create();
    private final StatefulRedisConnection<String, String> connection;
    private final RedisCommands<String, String> commands;
    private final int port;

    private LettuceZoo(int port) {
        this.port = port;
        connection = LIBRARY.connect(RedisURI.create("127.0.0.1", port));
        commands = connection.sync();
    }

    public static void main(String[] words) throws Exception {
        Zoo.main("lettuce", (port, setting) -> {
            if (setting.equals("safe")) {
                // What was sent is sent again after every reconnection, also with a `replayFilter`.
                LIBRARY.setOptions(ClientOptions.builder().autoReconnect(false).build());
            }
            return new LettuceZoo(port);
        }, words);
    }

    void close() { connection.close(); }
    String ping() { return commands.ping(); }
    String get(String k) { return commands.get(k); }
    byte[] get(byte[] k) {
        try (var bytes = LIBRARY.connect(ByteArrayCodec.INSTANCE, RedisURI.create("127.0.0.1", port))) {
            return bytes.sync().get(k);
        }
    }
    String set(String k, String v) { return commands.set(k, v); }
    String set(byte[] k, byte[] v) {
        try (var bytes = LIBRARY.connect(ByteArrayCodec.INSTANCE, RedisURI.create("127.0.0.1", port))) {
            return bytes.sync().set(k, v);
        }
    }
    String setEx(String k, String v, long seconds) { return commands.set(k, v, SetArgs.Builder.ex(seconds)); }
    String setNx(String k, String v) { return commands.set(k, v, SetArgs.Builder.nx()); }
    String setXx(String k, String v) { return commands.set(k, v, SetArgs.Builder.xx()); }
    String setXxGet(String k, String v) { return commands.setGet(k, v, SetArgs.Builder.xx()); }
    boolean setnx(String k, String v) { return commands.setnx(k, v); }
    String getset(String k, String v) { return commands.getset(k, v); }
    String getdel(String k) { return commands.getdel(k); }
    String getPx(String k, long millis) { return commands.getex(k, GetExArgs.Builder.px(millis)); }
    long append(String k, String v) { return commands.append(k, v); }
    long strlen(String k) { return commands.strlen(k); }
    long incr(String k) { return commands.incr(k); }
    long incrBy(String k, long n) { return commands.incrby(k, n); }
    long decr(String k) { return commands.decr(k); }
    long decrBy(String k, long n) { return commands.decrby(k, n); }
    long ttl(String k) { return commands.ttl(k); }
    long pttl(String k) { return commands.pttl(k); }
    boolean expire(String k, long seconds) { return commands.expire(k, seconds); }
    boolean persist(String k) { return commands.persist(k); }
    String mset(Map<String, String> pairs) { return commands.mset(pairs); }
    List<String> mget(String... keys) {
        return commands.mget(keys).stream().map(pair -> pair.getValueOrElse(null)).collect(java.util.stream.Collectors.toList());
    }
    long exists(String... keys) { return commands.exists(keys); }
    long del(String... keys) { return commands.del(keys); }
    void keys(String pattern) { commands.keys(pattern); }

    Object raw(String... words) {
        ProtocolKeyword name = new ProtocolKeyword() {
            public byte[] getBytes() { return words[0].getBytes(StandardCharsets.UTF_8); }
            public String toString() { return words[0]; }
        };
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        for (int i = 1; i < words.length; i++) {
            arguments.add(words[i]);
        }
        List<Object> answer = commands.dispatch(name, new NestedMultiOutput<>(StringCodec.UTF8), arguments);
        // A list of one for what is no list.
        return answer == null || answer.isEmpty() ? null : answer.size() == 1 ? answer.get(0) : answer;
    }

    List<Long> pipelineIncr(List<String> keys) {
        List<RedisFuture<Long>> futures = new ArrayList<>();
        for (String k : keys) {
            futures.add(connection.async().incr(k));
        }
        LettuceFutures.awaitAll(Duration.ofSeconds(30), futures.toArray(RedisFuture[]::new));
        return futures.stream().map(future -> future.toCompletableFuture().join()).toList();
    }
}
