# container.sh - `./run fresh --container`: the image of packaging/Dockerfile, built on a bare Debian
# and run in two containers as two hosts. Sourced by ./run, after fresh.sh.
#
# Everything lies in the temporary folder: a store of images of our own (vfs, which every file system
# can do), and the two hosts' network, which is two namespaces joined by a pair of devices. Only `apt-get`
# in the build sees the network outside.

container_limit_mb=120
container_base=docker.io/library/debian:12-slim # what the Dockerfile begins with

container_podman() {
    CONTAINERS_CONF=$fresh_work/containers.conf podman --root "$fresh_work/images" \
        --runroot "$fresh_work/containers" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs "$@"
}

container_host_0=trireme-$$-0
container_host_1=trireme-$$-1
container_address=10.77.0.1

container_end() {
    [ -z "$container_etcd" ] || kill "$container_etcd" 2>/dev/null || :
    container_podman rm --all --force >/dev/null 2>&1 || :
    for host in $container_host_0 $container_host_1; do
        ip netns delete "$host" 2>/dev/null || :
    done
    rm -rf --one-file-system "$fresh_work"
}

container_image() {
    # More than we may raise these to ourselves is refused where we lack the right to.
    cat >"$fresh_work/containers.conf" <<'END'
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
END
    rm -rf "$fresh_work/base/var/cache/apt/archives/"*.deb
    tar -C "$fresh_work/base" -cf - . | container_podman import --quiet - $container_base >/dev/null || return 1
    mkdir "$fresh_work/source"
    tar --exclude=./.git --exclude=./build --exclude=./runs --exclude=./compile_commands.json -cf - . |
        tar -C "$fresh_work/source" -xf - || return 1
    container_podman build --network host --pull=never -t trireme -f packaging/Dockerfile \
        "$fresh_work/source" >"$fresh_work/log" 2>&1 || {
        tail -n 30 "$fresh_work/log" >&2
        return 1
    }
}

container_size() {
    with=$(container_podman image inspect --format '{{.Size}}' trireme) &&
        without=$(container_podman image inspect --format '{{.Size}}' $container_base) || return 1
    added=$(((with - without + 999999) / 1000000))
    echo "    $added MB over its base"
    [ "$added" -le $container_limit_mb ]
}

container_entry() {
    container_podman run --rm --network none trireme >"$fresh_work/help" 2>&1 && grep -q '^usage: trirun' "$fresh_work/help"
}

# container_hosts: two namespaces joined by a pair of devices, and a container in each.
container_hosts() {
    ip netns add "$container_host_0" && ip netns add "$container_host_1" &&
        ip -n "$container_host_0" link add eth0 type veth peer name eth0 netns "$container_host_1" &&
        ip -n "$container_host_0" address add $container_address/24 dev eth0 &&
        ip -n "$container_host_1" address add 10.77.0.2/24 dev eth0 || return 1
    for host in $container_host_0 $container_host_1; do
        ip -n "$host" link set lo up && ip -n "$host" link set eth0 up &&
            container_podman run --detach --name "$host" --hostname "$host" --network "ns:/run/netns/$host" \
                --entrypoint sleep trireme infinity >/dev/null || return 1
    done
}

# container_both NAME COMMAND FLAGS...: trirun with the flags and the command on both hosts; RANK among
# the flags is the host's number. What they print is in $fresh_work/NAME.0 and .1.
container_both() {
    name=$1 command=$2
    shift 2
    pids=
    for rank in 0 1; do
        flags=
        for flag; do flags="$flags $(echo "$flag" | sed "s/RANK/$rank/")"; done
        # shellcheck disable=SC2086 # words
        container_podman exec "trireme-$$-$rank" timeout 240 trirun --nnodes=2 --nproc_per_node=2 $flags \
            $command >"$fresh_work/$name.$rank" 2>&1 &
        pids="$pids $!"
    done
    both=yes
    for pid in $pids; do wait "$pid" || both=; done
    [ -n "$both" ] || tail -n 20 "$fresh_work/$name".? >&2
    [ -n "$both" ]
}

# container_pair NAME FLAGS...: the toy on both hosts, each of which has two replicas.
container_pair() {
    container_name=$1
    shift
    container_both "$container_name" /examples/toy_ddp "$@" || return 1
    for rank in 0 1; do
        [ "$(grep -c 'all replicas are equal' "$fresh_work/$container_name.$rank")" -eq 2 ] || return 1
    done
}

# The tutorials' lines, on a few images: one container, and two that meet in etcd, each with the same
# images on a disk of its own; rank 0 prints.
container_images() {
    for host in $container_host_0 $container_host_1; do
        for file in scripts/make_tiny_imagenet /usr/share/datasets/fashion-mnist; do
            container_podman cp "$file" "$host:/tmp/" || return 1
        done
        container_podman exec "$host" sh -c 'mkdir /tmp/build && ln -s /examples /tmp/build/bin &&
            TRI_BUILD=/tmp/build exec sh /tmp/make_tiny_imagenet --out tiny-imagenet-200 \
                --data /tmp/fashion-mnist --classes 4 --train 32 --val 16 --test 0' || return 1
    done
}

container_imagenet="/examples/imagenet --arch resnet18 --epochs 1 --batch-size 32 tiny-imagenet-200"

container_imagenet_alone() {
    # shellcheck disable=SC2086 # words
    container_podman exec "$container_host_0" timeout 240 trirun --standalone --nnodes=1 --nproc_per_node=2 \
        $container_imagenet >"$fresh_work/alone" 2>&1 &&
        grep -q '^ \* Acc@1 ' "$fresh_work/alone" || {
        tail -n 20 "$fresh_work/alone" >&2
        return 1
    }
}

container_imagenet_pair() {
    container_both imagenet "$container_imagenet" \
        --rdzv_backend=etcd --rdzv_endpoint=$container_address:2379 --rdzv_id=four &&
        [ "$(cat "$fresh_work/imagenet".? | grep -c '^ \* Acc@1 ')" -eq 1 ]
}

container_classy() {
    container_podman exec "$container_host_0" timeout 240 trirun --standalone --nnodes=1 --nproc_per_node=2 \
        /examples/classy_train --device=cpu \
        --config_file /workspace/classy_vision/configs/template_config.json >"$fresh_work/classy" 2>&1 &&
        grep -q '^Training successful!$' "$fresh_work/classy" || {
        tail -n 20 "$fresh_work/classy" >&2
        return 1
    }
}

container_with_etcd() {
    ip netns exec "$container_host_0" etcd --data-dir "$fresh_work/etcd" \
        --listen-client-urls http://$container_address:2379 \
        --advertise-client-urls http://$container_address:2379 \
        --listen-peer-urls http://127.0.0.1:2380 >"$fresh_work/etcd.log" 2>&1 &
    container_etcd=$!
    container_pair etcd --rdzv-backend=etcd --rdzv-endpoint=$container_address:2379 --rdzv-id=three
}

fresh_container() {
    container_etcd=
    trap container_end EXIT
    fresh_step "the image of packaging/Dockerfile" container_image
    [ -z "$fresh_failed" ] || return 0
    fresh_step "it is at most $container_limit_mb MB larger than its base" container_size
    fresh_step "its entry point is trirun" container_entry
    fresh_step "two containers start" container_hosts
    [ -z "$fresh_failed" ] || return 0
    fresh_step "two containers as two hosts, static" container_pair static \
        --node-rank=RANK --master-addr=$container_address --master-port=29500
    fresh_step "two containers as two hosts, c10d" container_pair c10d \
        --rdzv-backend=c10d --rdzv-endpoint=$container_address:29400 --rdzv-id=two
    fresh_step "two containers as two hosts, etcd" container_with_etcd
    fresh_step "images in both" container_images
    fresh_step "imagenet in one container" container_imagenet_alone
    fresh_step "imagenet in two containers, etcd" container_imagenet_pair
    fresh_step "classy_train in one container" container_classy
}
