// go-redis, as ../README.md says.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const key = "zoo:go-redis:"

var ctx = context.Background()

func client(port, setting string) *redis.Client {
	options := &redis.Options{Addr: "127.0.0.1:" + port}
	if setting == "safe" {
		options.MaxRetries = -1
	}
	return redis.NewClient(options)
}

// A check that does not hold ends with this.
func equal[T comparable](got T, err error, wanted T) {
	if err != nil {
		panic(err)
	}
	if got != wanted {
		panic(fmt.Sprintf("%v instead of %v", got, wanted))
	}
}

func absent(err error) {
	if !errors.Is(err, redis.Nil) {
		panic(fmt.Sprintf("%v instead of nothing", err))
	}
}

func fails(err error, text string) {
	var answer redis.Error
	if !errors.As(err, &answer) || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("%v instead of an error with %q", err, text))
	}
}

func connect(r *redis.Client, ports []string) {
	pong, err := r.Ping(ctx).Result()
	equal(pong, err, "PONG")
	ok, err := r.Set(ctx, key+"shared", "here", 0).Result()
	equal(ok, err, "OK")
	for _, port := range ports[1:] {
		other := client(port, "default")
		here, err := other.Get(ctx, key+"shared").Result()
		equal(here, err, "here")
		other.Close()
	}
}

func stringsCheck(r *redis.Client, _ []string) {
	k := key + "string"
	r.Del(ctx, k)
	absent(r.Get(ctx, k).Err())
	ok, err := r.Set(ctx, k, "a", 0).Result()
	equal(ok, err, "OK")
	old, err := r.GetSet(ctx, k, "b").Result()
	equal(old, err, "a")
	n, err := r.Append(ctx, k, "cd").Result()
	equal(n, err, 3)
	n, err = r.StrLen(ctx, k).Result()
	equal(n, err, 3)
	old, err = r.GetDel(ctx, k).Result()
	equal(old, err, "bcd")
	absent(r.Get(ctx, k).Err())
}

func integers(r *redis.Client, _ []string) {
	k := key + "integer"
	r.Del(ctx, k)
	n, err := r.Incr(ctx, k).Result()
	equal(n, err, 1)
	n, err = r.IncrBy(ctx, k, 9).Result()
	equal(n, err, 10)
	n, err = r.Decr(ctx, k).Result()
	equal(n, err, 9)
	n, err = r.DecrBy(ctx, k, 4).Result()
	equal(n, err, 5)
}

func expiry(r *redis.Client, _ []string) {
	k := key + "expiry"
	ok, err := r.Set(ctx, k, "v", 100*time.Second).Result()
	equal(ok, err, "OK")
	left, err := r.TTL(ctx, k).Result()
	equal(left >= 98*time.Second && left <= 100*time.Second, err, true)
	left, err = r.PTTL(ctx, k).Result()
	equal(left > 98*time.Second && left <= 100*time.Second, err, true)
	yes, err := r.Expire(ctx, k, 200*time.Second).Result()
	equal(yes, err, true)
	yes, err = r.Persist(ctx, k).Result()
	equal(yes, err, true)
	left, err = r.TTL(ctx, k).Result()
	equal(left, err, -1)
	v, err := r.GetEx(ctx, k, 50*time.Millisecond).Result()
	equal(v, err, "v")
	until := time.Now().Add(10 * time.Second)
	for err == nil {
		_, err = r.Get(ctx, k).Result()
		equal(time.Now().Before(until), nil, true)
	}
	absent(err)
	left, err = r.TTL(ctx, k).Result()
	equal(left, err, -2)
}

func conditions(r *redis.Client, _ []string) {
	k := key + "condition"
	r.Del(ctx, k)
	absent(r.SetArgs(ctx, k, "a", redis.SetArgs{Mode: "XX"}).Err())
	ok, err := r.SetArgs(ctx, k, "a", redis.SetArgs{Mode: "NX"}).Result()
	equal(ok, err, "OK")
	absent(r.SetArgs(ctx, k, "b", redis.SetArgs{Mode: "NX"}).Err())
	old, err := r.SetArgs(ctx, k, "b", redis.SetArgs{Mode: "XX", Get: true}).Result()
	equal(old, err, "a")
	yes, err := r.SetNX(ctx, k, "c", 0).Result()
	equal(yes, err, false)
	v, err := r.Get(ctx, k).Result()
	equal(v, err, "b")
}

func extensions(r *redis.Client, _ []string) {
	k := key + "extension"
	r.Set(ctx, k, "a", 0)
	absent(r.Do(ctx, "SET", k, "b", "IFEQ", "no").Err())
	ok, err := r.Do(ctx, "SET", k, "b", "IFEQ", "a").Text()
	equal(ok, err, "OK")
	pair, err := r.Do(ctx, "SCATTER.GETV", k).StringSlice()
	equal(len(pair) == 2 && pair[0] == "b", err, true)
	n, err := r.Do(ctx, "SCATTER.CAS", k, pair[1], "c").Int()
	equal(n, err, 1)
	n, err = r.Do(ctx, "SCATTER.CAS", k, pair[1], "d").Int()
	equal(n, err, 0)
	r.Del(ctx, k)
	id := fmt.Sprint("go", time.Now().UnixNano())
	for range 2 {
		n, err = r.Do(ctx, "SCATTER.ONCE", id, "INCR", k).Int()
		equal(n, err, 1)
	}
}

func pipeline(r *redis.Client, _ []string) {
	var keys []string
	for n := range 50 {
		keys = append(keys, fmt.Sprint(key, "pipeline:", n))
	}
	r.Del(ctx, keys...)
	answers, err := r.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := range 1000 {
			pipe.Incr(ctx, keys[n%50])
		}
		return nil
	})
	equal(len(answers), err, 1000)
	for at, answer := range answers {
		equal(answer.(*redis.IntCmd).Val(), answer.Err(), int64(at/50+1))
	}
}

func severalKeys(r *redis.Client, _ []string) {
	a, b, none := key+"a", key+"b", key+"none"
	ok, err := r.MSet(ctx, a, "1", b, "2").Result()
	equal(ok, err, "OK")
	values, err := r.MGet(ctx, a, none, b).Result()
	equal(fmt.Sprint(values), err, "[1 <nil> 2]")
	n, err := r.Exists(ctx, a, b, none, a).Result()
	equal(n, err, 3)
	n, err = r.Del(ctx, a, b, none).Result()
	equal(n, err, 2)
}

func errorsCheck(r *redis.Client, _ []string) {
	k := key + "error"
	r.Set(ctx, k, "text", 0)
	fails(r.Do(ctx, "NOSUCH", "a").Err(), "ERR unknown command 'NOSUCH', with args beginning with: 'a' ")
	fails(r.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command")
	fails(r.Incr(ctx, k).Err(), "ERR value is not an integer or out of range")
	fails(r.Keys(ctx, "*").Err(), "ERR KEYS is not supported")
	v, err := r.Get(ctx, k).Result()
	equal(v, err, "text")
}

func binary(r *redis.Client, _ []string) {
	bytes := make([]byte, 256)
	for at := range bytes {
		bytes[at] = byte(at)
	}
	every := string(bytes)
	ok, err := r.Set(ctx, key+every, every, 0).Result()
	equal(ok, err, "OK")
	v, err := r.Get(ctx, key+every).Result()
	equal(v, err, every)
	n, err := r.Del(ctx, key+every).Result()
	equal(n, err, 1)
}

func large(r *redis.Client, _ []string) {
	k := key + "large"
	ok, err := r.Set(ctx, k, strings.Repeat("x", 65536), 0).Result()
	equal(ok, err, "OK")
	v, err := r.Get(ctx, k).Result()
	equal(len(v), err, 65536)
	fails(r.Set(ctx, k, strings.Repeat("x", 65537), 0).Err(), "longer than this network's limit")
	fails(r.Set(ctx, k, strings.Repeat("x", 1<<20), 0).Err(), "longer than this network's limit")
	n, err := r.StrLen(ctx, k).Result()
	equal(n, err, 65536)
}

func manyConnections(r *redis.Client, ports []string) {
	k := key + "many"
	r.Del(ctx, k)
	var pools []*redis.Client
	for _, port := range ports {
		pools = append(pools, client(port, "default"))
	}
	failures := make([]error, 32)
	var group sync.WaitGroup
	for n := range 32 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				if err := pools[n%3].Incr(ctx, k).Err(); err != nil {
					failures[n] = err
				}
			}
		}()
	}
	group.Wait()
	v, err := r.Get(ctx, k).Result()
	equal(v, errors.Join(append(failures, err)...), "320")
}

func checks(ports []string) {
	r := client(ports[0], "default")
	for _, check := range []struct {
		name string
		run  func(*redis.Client, []string)
	}{
		{"connect", connect},
		{"strings", stringsCheck},
		{"integers", integers},
		{"expiry", expiry},
		{"conditions", conditions},
		{"extensions", extensions},
		{"pipeline", pipeline},
		{"several_keys", severalKeys},
		{"errors", errorsCheck},
		{"binary", binary},
		{"large", large},
		{"many_connections", manyConnections},
	} {
		func() {
			defer func() {
				if why := recover(); why != nil {
					fmt.Printf("failed %s: %v\n", check.name, why)
				} else {
					fmt.Println("ok", check.name)
				}
			}()
			check.run(r, ports)
		}()
	}
}

func incr(port, key, setting string) {
	r := client(port, setting)
	if err := r.Ping(ctx).Err(); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	var n int64
	var err error
	if setting == "once" {
		n, err = r.Do(ctx, "SCATTER.ONCE", fmt.Sprint("go", time.Now().UnixNano()), "INCR", key).Int64()
	} else {
		n, err = r.Incr(ctx, key).Result()
	}
	if err != nil {
		fmt.Println("error", err)
	} else {
		fmt.Println("answer", n)
	}
}

func reconnect(port, key string) {
	r := client(port, "default")
	if err := r.Set(ctx, key, "v", 0).Err(); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	told := bufio.NewReader(os.Stdin)
	told.ReadString('\n')
	if v, err := r.Get(ctx, key).Result(); err != nil {
		fmt.Println("error", err)
	} else {
		fmt.Println("answer", v)
	}
	told.ReadString('\n')
	for {
		if v, err := r.Get(ctx, key).Result(); err == nil && v == "v" {
			fmt.Println("back")
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func main() {
	switch arguments := os.Args[2:]; os.Args[1] {
	case "checks":
		checks(arguments)
	case "incr":
		incr(arguments[0], arguments[1], arguments[2])
	default:
		reconnect(arguments[0], arguments[1])
	}
}
