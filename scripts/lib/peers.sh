# peers.sh - the PyTorch that we are compared with. Sourced, after packages.sh.

peer_torch_version=2.13.0
peer_tensorboard_version=2.21.0
peer_modules="torch, numpy, safetensors, tensorboard, PIL"

# find_peer_python: sets and exports TRI_PEER_PYTHON, a Python that has PyTorch and TensorBoard. The
# user's own one if set, else a virtual environment below build/peers, made the first time.
find_peer_python() {
    if [ -n "${TRI_PEER_PYTHON:-}" ]; then
        export TRI_PEER_PYTHON
        "$TRI_PEER_PYTHON" -c "import $peer_modules" && return
        echo "peers: TRI_PEER_PYTHON=$TRI_PEER_PYTHON lacks one of $peer_modules" >&2
        return 1
    fi
    TRI_PEER_PYTHON=$(pwd -P)/build/peers/venv/bin/python
    export TRI_PEER_PYTHON
    if [ -x "$TRI_PEER_PYTHON" ] && "$TRI_PEER_PYTHON" -c "import $peer_modules" 2>/dev/null; then
        return
    fi
    echo "peers: installing PyTorch $peer_torch_version into build/peers/venv, once; only comparisons need it."
    echo "peers: pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS) say from where; a CPU build is enough."
    need_packages $packages_venv
    mkdir -p build/peers
    python3 -m venv build/peers/venv >build/peers/pip.log 2>&1 &&
        "$TRI_PEER_PYTHON" -m pip install "torch==$peer_torch_version" numpy safetensors \
            "tensorboard==$peer_tensorboard_version" pillow \
            >>build/peers/pip.log 2>&1 && return
    tail -n 10 build/peers/pip.log >&2
    echo "peers: that failed (all of it: build/peers/pip.log)" >&2
    return 1
}
