# fresh.sh - the verb `fresh`: the README's commands on a Debian 12 that has nothing but a shell and
# apt. Sourced by ./run, after packages.sh.
#
# The roots lie in a temporary folder and are mounted in a namespace of their own, which takes every
# mount and process with it when it ends, however it ends.

fresh_release=bookworm
fresh_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# fresh_root NAME FOLDER: a copy of the bare system, with the tree (what git would have, and nothing that
# was built) in FOLDER of it.
fresh_root() {
    cp -a "$fresh_work/base" "$fresh_work/$1"
    mkdir -p "$fresh_work/$1/$2"
    tar --exclude=./.git --exclude=./build --exclude=./runs --exclude=./compile_commands.json -cf - . |
        tar -C "$fresh_work/$1/$2" --no-same-owner -xf -
    cp -L /etc/resolv.conf "$fresh_work/$1/etc/resolv.conf"
}

# fresh_sh NAME SCRIPT: runs the script as root in that system, in its own namespaces of mounts and
# processes and with nothing of this environment but the way to the network.
fresh_sh() {
    env -i PATH=$fresh_path HOME=/root LC_ALL=C ${http_proxy:+http_proxy="$http_proxy"} \
        ${https_proxy:+https_proxy="$https_proxy"} \
        unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
            root=$1
            mount -t proc proc "$root/proc"
            mount --rbind /sys "$root/sys"
            mount --rbind /dev "$root/dev"
            mount -t tmpfs tmpfs "$root/run"
            mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
            exec chroot "$root" sh -eu -c "$2"' sh "$fresh_work/$1" "$2" </dev/null &
    fresh_child=$! # waited for, since a shell hears no signal while its child runs
    wait "$fresh_child"
}

# fresh_end STATUS: on a signal. unshare hears none but this one, and takes with it what it began.
fresh_end() {
    [ -z "$fresh_child" ] || kill -KILL "$fresh_child" 2>/dev/null || :
    exit "$1"
}

# fresh_processor: the processor seconds, user and system, of all children that have ended.
fresh_processor() {
    times >"$fresh_work/times"
    awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/)
                   printf "%d\n", u[1] * 60 + u[2] + s[1] * 60 + s[2] }' "$fresh_work/times"
}

# fresh_step NAME COMMAND...: one line of the result.
fresh_step() {
    fresh_name=$1
    shift
    say "fresh: $fresh_name"
    started=$(date +%s)
    fresh_processor >"$fresh_work/before"
    if "$@"; then outcome=passed; else outcome=FAILED; fi
    [ $outcome = passed ] || fresh_failed=yes
    fresh_processor >"$fresh_work/after"
    used=$(($(cat "$fresh_work/after") - $(cat "$fresh_work/before")))
    fresh_results="$fresh_results
$outcome in $(clock $(($(date +%s) - started))), $(clock $used) of processor time: $fresh_name"
}

run_fresh() {
    all= container=
    for arg; do
        case $arg in
        --container) container=1 ;;
        --all) all=" --all" ;;
        *) wrong_usage "fresh: unknown option $arg" ;;
        esac
    done
    [ "$(id -u)" -eq 0 ] || {
        echo "run: fresh makes a system of its own to chroot into: run it as root" >&2
        exit 1
    }
    need_packages debootstrap ${container:+$packages_container}
    fresh_failed= fresh_results= fresh_child=
    fresh_work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-fresh.XXXXXX")
    trap 'rm -rf --one-file-system "$fresh_work"' EXIT # container.sh has more to clear away
    trap 'fresh_end 130' INT
    trap 'fresh_end 143' TERM
    say "fresh: making a Debian $fresh_release in $fresh_work"
    unshare --mount --pid --fork --kill-child --mount-proc \
        debootstrap --variant=minbase "$fresh_release" "$fresh_work/base" >"$fresh_work/log" 2>&1 &
    fresh_child=$!
    wait "$fresh_child" || {
        tail -n 20 "$fresh_work/log" >&2
        echo "run: debootstrap could not make a Debian $fresh_release (above)" >&2
        exit 1
    }

    if [ -n "$container" ]; then
        . scripts/lib/container.sh
        fresh_container
        echo "$fresh_results"
        [ -z "$fresh_failed" ] || exit 1
        return
    fi

    fresh_root root trireme
    fresh_step "./run train, as root" fresh_sh root "cd /trireme && ./run train"
    fresh_step "cmake --install" fresh_sh root "cd /trireme && cmake --install build --prefix /opt/trireme >/dev/null"
    fresh_step "./run test$all, as root" fresh_sh root "cd /trireme && ./run test$all"
    rm -rf --one-file-system "$fresh_work/root"

    fresh_root user srv/user/trireme
    fresh_step "./run test, as a user with sudo" fresh_sh user '
        apt-get -q update >/dev/null
        DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends sudo >/dev/null 2>&1
        useradd --home-dir /srv/user --shell /bin/sh user
        echo "user ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/user
        chown -R user:user /srv/user
        exec su - user -c "cd trireme && ./run test"'

    echo "$fresh_results"
    [ -z "$fresh_failed" ] || exit 1
}
