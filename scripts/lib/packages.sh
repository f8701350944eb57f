# packages.sh - what has to be installed, and how. Sourced by ./run, after progress.sh. A package is added here and
# in the table of docs/ARCHITECTURE.md, with a reason.

packages_build="gcc g++ cmake ninja-build pkg-config libdnnl-dev libcmocka-dev zlib1g-dev
    libjpeg-dev libpng-dev libjansson-dev libcairo2-dev libxxhash-dev
    libcurl4-openssl-dev libmicrohttpd-dev"
packages_data="dataset-fashion-mnist"
# clang and libclang-rt: the second compiler of the tests, with its ThreadSanitizer; python3: trirun
# starts a Python script in one; groff-base: the manual pages are formatted; openmpi-bin: programs
# start under its mpirun; libsodium: proofs of a job key, loaded when one is used; iproute2: hosts in
# network namespaces; etcd-server: agents meet in one (where systemd runs, the package starts its own
# as well, on localhost only); gdb: shows tensors; abigail-tools: abidiff compares the interface with
# the recorded one.
packages_test="clang libclang-rt-dev clang-format-14 python3-minimal groff-base openmpi-bin
    libsodium-dev iproute2 etcd-server gdb abigail-tools"
packages_lint="clang-format-14 clang-tidy-14"
# Releases that no longer have these do without: formatting is checked where version 14 is.
packages_optional="libclang-rt-dev clang-format-14 libmpich-dev mpich libgloo-dev etcd-server"
packages_mpi="libopenmpi-dev openmpi-bin libmpich-dev mpich"
# Engines as plug-ins: built and tested where these are.
packages_plugins="$packages_mpi libgloo-dev"
# Containers as hosts, without a daemon: podman with runc, in network namespaces.
packages_container="podman runc iproute2 etcd-server dataset-fashion-mnist"
packages_venv="python3 python3-venv"

package_is_there() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# without NAME WORD...: the words but that one.
without() {
    dropped=$1
    shift
    for word; do
        [ "$word" = "$dropped" ] || printf ' %s' "$word"
    done
}

# Where there is no apt the tools themselves are looked for: how they got there is not our business.
need_tools_elsewhere() {
    missing=
    for tool in cc c++ cmake ninja pkg-config; do
        command -v $tool >/dev/null 2>&1 || missing="$missing $tool"
    done
    if command -v pkg-config >/dev/null 2>&1; then
        for module in cmocka zlib libjpeg libpng jansson cairo libxxhash; do
            pkg-config --exists $module || missing="$missing $module(development files)"
        done
    fi
    [ -z "$missing" ] && return 0
    echo "run: this system has no apt, so please install by hand:$missing" >&2
    echo "run: on Debian these packages have it all: $(echo $*)" >&2
    exit 1
}

# follow_apt: what apt-get prints; it gets every package, then unpacks all and then sets all up.
follow_apt() {
    progress_begin
    all=0 got=0 unpacked=0 ready=0
    while read -r line; do
        case $line in
        *' newly installed, '*)
            all=${line%% newly*}
            all=${all##* }
            ;;
        Get:*) got=$((got + 1)) ;;
        'Unpacking '*) unpacked=$((unpacked + 1)) ;;
        'Setting up '*) ready=$((ready + 1)) ;;
        *) continue ;;
        esac
        progress_tick
        progress "$got of $all packages downloaded, $unpacked unpacked, $ready set up, $(clock $progress_seconds)"
    done
    progress_clear
    progress_tick
    echo "    installed in $(clock $progress_seconds)"
}

apt_get() {
    $as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q "$@"
}

# need_packages NAME...: returns when all of them are installed, else ends the program.
need_packages() {
    if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
        need_tools_elsewhere "$@"
        return
    fi
    missing=
    for package; do
        package_is_there "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0

    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        # Without a terminal nobody can type a password: then sudo must do without.
        if [ -t 0 ]; then as_root=sudo; else as_root="sudo -n"; fi
        if ! command -v sudo >/dev/null 2>&1 || { [ ! -t 0 ] && ! sudo -n true 2>/dev/null; }; then
            echo "run: packages are missing and this user may not install them. As root:" >&2
            echo "    apt-get install --no-install-recommends$missing" >&2
            exit 1
        fi
    fi
    say "installing (build/apt.log):$missing"
    mkdir -p build
    apt_get update >build/apt-update.log 2>&1 </dev/null ||
        say "apt-get update failed (build/apt-update.log); trying with what is there"
    for package in $packages_optional; do
        case " $missing " in
        *" $package "*) apt-cache show "$package" >/dev/null 2>&1 || missing=$(without "$package" $missing) ;;
        esac
    done
    [ -n "$missing" ] || return 0
    if ! logged build/apt.log follow_apt apt_get -y -o Dpkg::Use-Pty=0 \
        -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing; then
        tail -n 20 build/apt.log >&2
        echo "run: apt-get could not install:$missing (all of its output: build/apt.log)" >&2
        exit 1
    fi
}
