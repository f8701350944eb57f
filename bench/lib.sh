# lib.sh - what the benchmark scripts share. A script bench/NAME.sh begins with
#
#     . "$(dirname "$0")/lib.sh"
#     bench_begin NAME
#
# measures, calls bench_case for each line of its table, and ends with bench_end, which prints the
# table and writes build/bench/NAME.json: [{"case","ours","peer","peer_name","unit","ratio"}].
# `./run bench NAME` has built the release preset before. With --peers TRI_BENCH_PEERS is 1: then
# measure the peers in the same run, alternating (alternate), since machines drift.
#
# Without --full (TRI_BENCH_FULL) a benchmark ends within three minutes: loops ask bench_round
# whether one more round fits, and what is slow has smaller defaults (full_or). A script whose rows
# are made of what all rounds left makes them in a function bench_table, which runs at the end, and
# also when the benchmark is stopped by Ctrl-C or SIGTERM: what was measured until then is printed.

set -eu
cd "$(dirname "$0")/.."
bench_bin=$(pwd -P)/build/bin
export bench_bin

# with_peers: true if peers are to be measured.
with_peers() {
    [ -n "${TRI_BENCH_PEERS:-}" ]
}

# need_pytorch: TRI_PEER_PYTHON is a Python with PyTorch afterwards; ends the script if not to be had.
need_pytorch() {
    . scripts/lib/progress.sh
    . scripts/lib/packages.sh
    . scripts/lib/peers.sh
    find_peer_python || exit 1
}

# need_mpi NAME: builds bench/peer_NAME.c with Open MPI into build/bench/peer_NAME; ends the script
# if that cannot be. Run it with `$mpirun -np 2 build/bench/peer_NAME`.
need_mpi() {
    command -v mpicc >/dev/null 2>&1 && command -v mpirun >/dev/null 2>&1 || {
        echo "bench: Open MPI is missing; ./run bench --peers installs it" >&2
        exit 1
    }
    mkdir -p build/bench
    mpicc -O3 -o "build/bench/peer_$1" "bench/peer_$1.c" -lm || exit 1
    mpirun="mpirun --oversubscribe"
    [ "$(id -u)" -ne 0 ] || mpirun="$mpirun --allow-run-as-root"
}

# Seconds after which no round begins that would not end before the third minute does.
bench_budget=150

# bench_part K N: the rounds that follow are part K of N and share the time with the others.
bench_part() {
    bench_budget=$((150 * $1 / $2))
}

# full_or FULL SHORT: which of the two this run wants.
full_or() {
    if [ -n "${TRI_BENCH_FULL:-}" ]; then echo "$1"; else echo "$2"; fi
}

# bench_round I N: true if round I (from 0) of N is to be run: it takes as long as the one before.
bench_round() {
    bench_now=$(date +%s)
    [ "$1" -ne 0 ] || bench_last=$bench_now
    bench_took=$((bench_now - bench_last))
    bench_last=$bench_now
    [ "$1" -lt "$2" ] || return 1
    [ -z "${TRI_BENCH_FULL:-}" ] && [ "$1" -gt 0 ] || return 0
    [ $((bench_now - bench_started + bench_took)) -le $bench_budget ] || {
        echo "bench: $bench_name: $1 of $2 rounds in the time there is (--full takes what it needs)" >&2
        return 1
    }
}

# Overridden by scripts that make their rows out of all rounds.
bench_table() {
    :
}

# bench_stop STATUS: stopped by a signal. The rows that there are, as far as they can be made.
bench_stop() {
    trap '' INT TERM
    exec >&9 2>&8 # the signal may have come inside of a redirection
    echo "bench: $bench_name was stopped; this is what it has:" >&2
    set +e
    bench_table 2>/dev/null
    bench_end
    exit "$1"
}

bench_begin() {
    bench_name=$1
    bench_started=$(date +%s)
    exec 8>&2 9>&1
    mkdir -p build/bench
    bench_work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bench.XXXXXX")
    trap 'rm -rf "$bench_work"' EXIT
    trap 'bench_stop 130' INT
    trap 'bench_stop 143' TERM
    bench_rows=$bench_work/rows
    : >"$bench_rows"
}

# median: of the numbers on standard input, one a line (the lower of the two middle ones of an
# even count, so that it is a value that was measured).
median() {
    sort -g | awk 'NF { v[++n] = $1 } END { if (!n) exit 1; print v[int((n + 1) / 2)] }'
}

# column NAME K: of what was measured under NAME, a line for each round, the median of column K.
column() {
    [ ! -s "$bench_work/$1" ] || awk -v k="$2" '{ print $k }' "$bench_work/$1" | median
}

# alternate ROUNDS COMMAND_A COMMAND_B: A B A B ...; each command (a shell line) prints one number.
# Afterwards median_a and median_b are their medians. COMMAND_B may be empty: then median_b is.
alternate() {
    : >"$bench_work/a"
    : >"$bench_work/b"
    alternate_round=0
    while bench_round $alternate_round "$1"; do
        sh -c "$2" >>"$bench_work/a" || return 1
        [ -z "$3" ] || sh -c "$3" >>"$bench_work/b" || return 1
        alternate_round=$((alternate_round + 1))
    done
    median_a=$(median <"$bench_work/a")
    median_b=
    [ -z "$3" ] || median_b=$(median <"$bench_work/b")
}

# bench_case CASE UNIT OURS [PEER PEER_NAME [higher]]: one row. The ratio is above 1 where ours is
# better; `higher` says that more is better (accuracy, throughput), else less is (times).
# A case that was not reached (ours is empty) has no row.
bench_case() {
    [ -n "$3" ] || return 0
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" "${5:-}" "${6:-lower}" >>"$bench_rows"
}

bench_end() {
    awk -F '\t' -v json="build/bench/$bench_name.json" '
        function number(text) { return text == "" ? "null" : text + 0 == text ? text + 0 : "null" }
        function quoted(text) {
            if (text == "") return "null"
            gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text)
            return "\"" text "\""
        }
        BEGIN { printf "[" >json; printf "%-36s %12s %12s  %-8s %-24s %s\n", "case", "ours", "peer", "unit", "peer name", "ratio" }
        {
            ratio = ""
            if ($4 + 0 > 0 && $3 + 0 > 0) ratio = $6 == "higher" ? $3 / $4 : $4 / $3
            printf "%s\n  {\"case\": %s, \"ours\": %s, \"peer\": %s, \"peer_name\": %s, \"unit\": %s, \"ratio\": %s}",
                (NR > 1 ? "," : ""), quoted($1), number($3), number($4), quoted($5), quoted($2), number(ratio) >json
            printf "%-36s %12s %12s  %-8s %-24s %s\n", $1, $3, $4 == "" ? "-" : $4, $2, $5 == "" ? "-" : $5,
                ratio == "" ? "-" : sprintf("%.2f", ratio)
        }
        END { printf "\n]\n" >json }' "$bench_rows"
    echo "written: build/bench/$bench_name.json"
}

# --- hosts: network namespaces, joined by a switch ---------------------------------------------

# hosts_begin N [RATE]: N network namespaces as hosts 10.77.0.1 to .N, joined by a switch; RATE
# ("1gbit") limits what each sends. Ends the script where that cannot be, saying what is missing.
hosts_begin() {
    [ "$(id -u)" -eq 0 ] || {
        echo "bench: $bench_name makes network namespaces: run it as root" >&2
        exit 1
    }
    for tool in ip tc; do
        command -v $tool >/dev/null 2>&1 || {
            echo "bench: $tool is missing: install iproute2" >&2
            exit 1
        }
    done
    hosts_end
    hosts_n=$1
    hosts_name=tri$$
    hosts_port=20000
    trap 'hosts_end; rm -rf "$bench_work"' EXIT
    host=0
    while [ $host -le "$hosts_n" ]; do
        ip netns add "$hosts_name-$host" || exit 1
        ip -n "$hosts_name-$host" link set lo up
        host=$((host + 1))
    done
    ip -n "$hosts_name-0" link add switch type bridge || exit 1
    ip -n "$hosts_name-0" link set switch up
    host=1
    while [ $host -le "$hosts_n" ]; do
        ip -n "$hosts_name-$host" link add eth0 type veth peer name "port$host" netns "$hosts_name-0" || exit 1
        ip -n "$hosts_name-0" link set "port$host" master switch up
        ip -n "$hosts_name-$host" addr add "10.77.0.$host/24" dev eth0
        ip -n "$hosts_name-$host" link set eth0 up
        [ -z "${2:-}" ] || tc -n "$hosts_name-$host" qdisc add dev eth0 root \
            tbf rate "$2" burst 128kb latency 50ms || {
            echo "bench: this kernel has no token bucket (sch_tbf) to limit a link with" >&2
            exit 1
        }
        host=$((host + 1))
    done
}

hosts_end() {
    [ -z "${hosts_n:-}" ] || for host in $(seq 0 "$hosts_n"); do
        for pid in $(ip netns pids "$hosts_name-$host" 2>/dev/null); do
            kill -9 "$pid" 2>/dev/null || true
        done
        ip netns del "$hosts_name-$host" 2>/dev/null || true
    done
    hosts_n=
}

# hosts_run PER_HOST COMMAND...: as many ranks on each host with the variables of env://; prints what
# they print; fails if one of them does, with the last lines of what they said.
hosts_run() {
    per_host=$1
    shift
    hosts_port=$((hosts_port + 1))
    rank=0
    waits=
    while [ $rank -lt $((per_host * hosts_n)) ]; do
        host=$((rank / per_host + 1))
        env RANK=$rank WORLD_SIZE=$((per_host * hosts_n)) LOCAL_RANK=$((rank % per_host)) \
            LOCAL_WORLD_SIZE="$per_host" MASTER_ADDR=10.77.0.1 MASTER_PORT=$hosts_port \
            GLOO_SOCKET_IFNAME=eth0 ip netns exec "$hosts_name-$host" timeout 300 "$@" \
            2>"$bench_work/rank$rank" &
        waits="$waits $!"
        rank=$((rank + 1))
    done
    hosts_failed=
    for pid in $waits; do
        wait "$pid" || hosts_failed=yes
    done
    [ -z "$hosts_failed" ] || {
        tail -qn 3 "$bench_work"/rank* >&2
        return 1
    }
}
