#!/usr/bin/env bash
# redis-cli, as ../README.md says. What a person's program on top of it would do is left out.
set -euo pipefail
key=zoo:redis-cli:

cli() { redis-cli -p "$port" "$@"; }
equal() { [ "$1" = "$2" ] || { echo "'$1' instead of '$2'"; return 1; }; }
within() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || { echo "$1 is not from $2 to $3"; return 1; }; }
fails() {
    local text=$1 got
    shift
    got=$("$@" 2>&1) || true
    [[ $got == *"$text"* ]] || { echo "'$got' instead of an error with '$text'"; return 1; }
}

connect() {
    equal "$(cli ping)" PONG
    equal "$(cli set ${key}shared here)" OK
    local other
    for other in "${ports[@]:1}"; do equal "$(port=$other cli get ${key}shared)" here; done
}
strings() {
    local k=${key}string
    cli del $k >/dev/null
    equal "$(cli get $k)" ""
    equal "$(cli set $k a)" OK
    equal "$(cli getset $k b)" a
    equal "$(cli append $k cd)" 3
    equal "$(cli strlen $k)" 3
    equal "$(cli getdel $k)" bcd
    equal "$(cli exists $k)" 0
}
integers() {
    local k=${key}integer
    cli del $k >/dev/null
    equal "$(cli incr $k)" 1
    equal "$(cli incrby $k 9)" 10
    equal "$(cli decr $k)" 9
    equal "$(cli decrby $k 4)" 5
}
expiry() {
    local k=${key}expiry until=$((SECONDS + 10))
    equal "$(cli set $k v ex 100)" OK
    within "$(cli ttl $k)" 98 100
    within "$(cli pttl $k)" 98000 100000
    equal "$(cli expire $k 200)" 1
    equal "$(cli persist $k)" 1
    equal "$(cli ttl $k)" -1
    equal "$(cli getex $k px 50)" v
    while [ "$(cli exists $k)" = 1 ]; do [ "$SECONDS" -lt "$until" ] || { echo "it does not expire"; return 1; }; done
    equal "$(cli ttl $k)" -2
}
conditions() {
    local k=${key}condition
    cli del $k >/dev/null
    equal "$(cli set $k a xx)" ""
    equal "$(cli set $k a nx)" OK
    equal "$(cli set $k b nx)" ""
    equal "$(cli set $k b xx get)" a
    equal "$(cli setnx $k c)" 0
    equal "$(cli get $k)" b
}
extensions() {
    local k=${key}extension version id=cli$RANDOM$$
    cli set $k a >/dev/null
    equal "$(cli set $k b ifeq no)" ""
    equal "$(cli set $k b ifeq a)" OK
    version=$(cli scatter.getv $k | tail -n 1)
    equal "$(cli scatter.cas $k "$version" c)" 1
    equal "$(cli scatter.cas $k "$version" d)" 0
    cli del $k >/dev/null
    equal "$(cli scatter.once $id incr $k)" 1
    equal "$(cli scatter.once $id incr $k)" 1
}
pipeline() {
    local keys=() n
    for n in {10..59}; do keys+=("${key}pipeline:$n"); done
    cli del "${keys[@]}" >/dev/null
    for n in {0..999}; do
        printf '*2\r\n$4\r\nINCR\r\n$%s\r\n%s\r\n' "${#keys[n % 50]}" "${keys[n % 50]}"
    done | cli --pipe >/dev/null
    equal "$(cli mget "${keys[@]}" | sort -u)" 20
}
several_keys() {
    equal "$(cli mset ${key}a 1 ${key}b 2)" OK
    equal "$(cli mget ${key}a ${key}none ${key}b | tr '\n' ' ')" "1  2 "
    equal "$(cli exists ${key}a ${key}b ${key}none ${key}a)" 3
    equal "$(cli del ${key}a ${key}b ${key}none)" 2
}
errors() {
    local k=${key}error
    cli set $k text >/dev/null
    fails "ERR unknown command 'NOSUCH', with args beginning with: 'a' " cli NOSUCH a
    fails "ERR wrong number of arguments for 'get' command" cli get
    fails "ERR value is not an integer or out of range" cli incr $k
    fails "ERR KEYS is not supported" cli keys '*'
    equal "$(cli get $k)" text
}
binary() {
    local k=${key}binary all
    all=$(for n in {0..255}; do printf '\\x%02x' "$n"; done)
    equal "$(printf 'set "%s%s" "%s"\n' $k "$all" "$all" | cli)" OK
    equal "$(printf 'get "%s%s"\n' $k "$all" | cli | head -c 256 | od -An -v -tx1 | tr -d ' \n')" "${all//\\x/}"
    equal "$(printf 'del "%s%s"\n' $k "$all" | cli)" 1
}
large() {
    local k=${key}large
    equal "$(head -c 65536 /dev/zero | tr '\0' x | cli -x set $k)" OK
    equal "$(cli get $k | wc -c)" 65537
    fails "longer than this network's limit" eval "head -c 65537 /dev/zero | tr '\\0' x | cli -x set $k"
    fails "longer than this network's limit" eval "head -c 1048576 /dev/zero | tr '\\0' x | cli -x set $k"
    equal "$(cli strlen $k)" 65536
}
many_connections() {
    local k=${key}many pids=() n
    cli del $k >/dev/null
    for n in {0..31}; do
        redis-cli -p "${ports[$((n % 3))]}" -r 10 incr $k >/dev/null &
        pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n"; done
    equal "$(cli get $k)" 320
}

checks() {
    local name why
    for name in connect strings integers expiry conditions extensions pipeline several_keys errors binary large many_connections; do
        # A shell of its own, in which the first difference ends the check.
        if why=$(bash -euo pipefail "$0" check "$name" "${ports[@]}" 2>&1); then
            echo "ok $name"
        else
            echo "failed $name: ${why//$'\n'/ }"
        fi
    done
}

# One redis-cli that reads its commands, as a script that writes to it has it: its answers arrive in `lines`.
open() {
    coproc CLI { exec stdbuf -oL redis-cli -p "$port" 2>&1; }
}
say() { printf '%s\n' "$*" >&"${CLI[1]}"; }
hear() { IFS= read -r answer <&"${CLI[0]}"; }

mode=$1
shift
case $mode in
    checks) ports=("$@") port=$1 && checks ;;
    check) name=$1 && shift && ports=("$@") port=$1 && "$name" ;;
    incr)
        port=$1
        open
        say ping && hear
        echo ready
        if [ "$3" = once ]; then say scatter.once "cli$RANDOM$$" incr "$2"; else say incr "$2"; fi
        hear
        case $answer in [0-9]*) echo "answer $answer" ;; *) echo "error $answer" ;; esac
        ;;
    reconnect)
        port=$1
        open
        say set "$2" v && hear
        echo ready
        read -r
        say get "$2" && hear
        echo "error $answer"
        read -r
        until [ "$answer" = v ]; do say get "$2" && hear; done
        echo back
        ;;
esac
