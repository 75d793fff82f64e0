# Runs on each host of a network: starts, watches and ends peers. It needs a POSIX shell, /proc, and the usual small programs.
#
# Each peer has a directory $dir/peers/NAME: `pid` (process id, start time, and the id of the running system), `out` (what it
# printed), `log`, `data`. A process writes its own id before it becomes the peer, so that none runs without a record. A process
# counts as the peer only while all three are as recorded: an id that the system gave to another process is never signalled.
set -u
umask 077
dir=$1 op=$2
shift 2
case $dir in
/*) ;;
*) dir=$HOME/$dir ;;
esac

die() {
    echo "$*" >&2
    exit 9
}

# Prints the start time of a process that runs, or nothing. The name of a process may have spaces: the fields count from its end.
start_time() {
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 0
    line=${line##*) }
    set -- $line
    case $1 in
    Z | X) ;; # It has ended, and nobody has asked for its status yet.
    *) echo "${20}" ;;
    esac
}

read -r system </proc/sys/kernel/random/boot_id

# Sets `pid` to the process of a peer, or to nothing.
running() {
    pid=
    { read -r known began there <"$dir/peers/$1/pid"; } 2>/dev/null || return 0
    [ -n "$began" ] && [ "$there" = "$system" ] && [ "$(start_time "$known")" = "$began" ] && pid=$known
    return 0
}

case $op in
survey) # survey NEED_KIB : what this host is, its listening ports in hexadecimal digits, and the peers that run
    need=$1
    [ "$(uname -s)" = Linux ] || die "this is $(uname -s): only Linux hosts are supported"
    for program in awk df setsid sha256sum tar; do
        command -v "$program" >/dev/null || die "there is no program $program"
    done
    mkdir -p "$dir" || die "cannot make the directory $dir"
    free=$(df -Pk "$dir" | tail -n 1 | awk '{ print $4 }')
    [ "$free" -ge "$need" ] || die "$dir has room for $free KiB, and $need KiB are needed"
    [ -x "$dir/bin/scatter" ] && echo "program $(sha256sum "$dir/bin/scatter" | cut -d ' ' -f 1)"
    awk '$4 == "0A" { sub(/.*:/, "", $2); print "listens " $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
    for home in "$dir"/peers/*; do
        [ -d "$home" ] || continue
        running "${home##*/}"
        [ -n "$pid" ] && echo "runs ${home##*/}"
    done
    exit 0
    ;;
install) # install NAME SHA256 <PROGRAM : puts a program in its place, if it arrived whole
    new=$dir/bin/.$1.$$
    trap 'rm -f "$new"' EXIT
    mkdir -p "$dir/bin" && cat >"$new" || die "cannot write to $dir/bin"
    [ "$(sha256sum "$new" | cut -d ' ' -f 1)" = "$2" ] || die "the program $1 did not arrive whole"
    chmod 755 "$new" || die "cannot write to $dir/bin"
    "$new" --version || die "$1 does not run on this host, a $(uname -m)"
    mv "$new" "$dir/bin/$1" || die "cannot write to $dir/bin"
    ;;
start) # start PEER ARGUMENT… : starts a peer that does not run
    peer=$1
    shift
    running "$peer"
    [ -z "$pid" ] || exit 0
    home=$dir/peers/$peer
    mkdir -p "$home/data" || die "cannot write to $home"
    rm -f "$home/pid" "$home/out"
    for name in $(env | sed -n 's/^\(SCATTER_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
    setsid sh -c '
        home=$1 program=$2 system=$3
        shift 3
        read -r line </proc/$$/stat
        line=${line##*) }
        echo "$$ $(set -- $line; echo "${20}") $system" >"$home/pid.new" && mv "$home/pid.new" "$home/pid" || exit 1
        exec "$program" "$@" </dev/null >"$home/out" 2>>"$home/log"
    ' sh "$home" "$dir/bin/scatter" "$system" run --data-dir "$home/data" --output json "$@" </dev/null >/dev/null 2>&1 &
    tries=100
    until [ -f "$home/pid" ] || [ "$tries" = 0 ]; do
        tries=$((tries - 1))
        sleep 0.05
    done
    ;;
states) # states : a line for each peer: NAME PID-or-dash LAST-LINE-OF-OUTPUT
    for home in "$dir"/peers/*; do
        [ -d "$home" ] || continue
        running "${home##*/}"
        line=
        { read -r line <"$home/out"; } 2>/dev/null
        echo "${home##*/} ${pid:--} $line"
    done
    ;;
signal) # signal NUMBER PEER… : signals the peers that run; prints those
    number=$1
    shift
    for peer; do
        running "$peer"
        [ -n "$pid" ] && kill -s "$number" "$pid" 2>/dev/null && echo "$peer"
    done
    exit 0
    ;;
kill) # kill PEER : kills a peer, and waits until it is gone
    running "$1"
    [ -n "$pid" ] || exit 0
    kill -s KILL "$pid" 2>/dev/null
    while running "$1" && [ -n "$pid" ]; do sleep 0.01; done
    ;;
end) # end SECONDS : asks all peers to stop, waits, and kills those that still run; prints how many ran, and how many were killed
    ran=0 killed=0
    for home in "$dir"/peers/*; do
        [ -d "$home" ] || continue
        running "${home##*/}"
        [ -n "$pid" ] || continue
        ran=$((ran + 1))
        # A frozen process hears nothing before it goes on.
        kill -s CONT "$pid" 2>/dev/null
        kill -s TERM "$pid" 2>/dev/null
    done
    left=$(($1 * 5))
    while :; do
        alive=
        for home in "$dir"/peers/*; do
            [ -d "$home" ] || continue
            running "${home##*/}"
            [ -n "$pid" ] && alive="$alive $pid"
        done
        [ -n "$alive" ] || break
        if [ "$left" -le 0 ]; then
            for pid in $alive; do
                kill -s KILL "$pid" 2>/dev/null && [ "$left" = 0 ] && killed=$((killed + 1))
            done
        fi
        left=$((left - 1))
        [ "$left" -gt -50 ] || die "processes that cannot be killed:$alive"
        sleep 0.2
    done
    echo "$ran $killed"
    ;;
forget) # forget PEER… : removes the data of peers that do not run
    for peer; do
        running "$peer"
        [ -z "$pid" ] || die "$peer runs"
        rm -rf "$dir/peers/$peer"
    done
    ;;
log) # log PEER LINES : the end of its log
    tail -n "$2" "$dir/peers/$1/log" 2>/dev/null || die "there is no log of $1"
    ;;
sum) # sum NAME : the checksum of a program, or nothing
    [ -x "$dir/bin/$1" ] && sha256sum "$dir/bin/$1" | cut -d ' ' -f 1
    exit 0
    ;;
clock) # clock : the time of day in nanoseconds
    date +%s%N
    ;;
work) # work ORDER : the clients of this host; they end with their input
    cd "$dir" || exit 9
    exec bin/scatter-testnet worker "$1"
    ;;
take) # take FILE : a file, which is removed then
    cd "$dir" && cat "$1" && rm -f "$1"
    ;;
pack) # pack : logs, output and observations, as a tar file
    cd "$dir" || exit 9
    set --
    for file in peers/*/log peers/*/out observed-*.jsonl; do
        [ -f "$file" ] && set -- "$@" "$file"
    done
    [ $# -gt 0 ] || exit 0
    tar -cf - "$@"
    ;;
run) # run COMMAND… : anything, in the directory
    cd "$dir" 2>/dev/null || cd "$HOME" || exit 9
    exec sh -c "$*"
    ;;
wipe) # wipe : removes everything, if no peer runs
    for home in "$dir"/peers/*; do
        [ -d "$home" ] || continue
        running "${home##*/}"
        [ -z "$pid" ] || die "${home##*/} runs"
    done
    rm -rf "$dir"
    ;;
*)
    die "unknown: $op"
    ;;
esac
