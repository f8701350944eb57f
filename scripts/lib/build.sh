# build.sh - configure and build a preset. Sourced by ./run and by bench/lib.sh.

jobs=${TRI_JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}

# preset_folder NAME: where CMakePresets.json builds it.
preset_folder() {
    if [ "$1" = release ]; then echo build; else echo "build/$1"; fi
}

# build_preset NAME: 1 if it does not build; then the output was shown and lies in FOLDER/build.log.
build_preset() {
    folder=$(preset_folder "$1")
    mkdir -p "$folder"
    # CMake refuses a cache of another place (a tree that was copied or moved) or of another
    # generator (of `cmake -B build`).
    if [ -f "$folder/CMakeCache.txt" ] &&
        ! { grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "$folder/CMakeCache.txt" &&
            grep -qx 'CMAKE_GENERATOR:INTERNAL=Ninja' "$folder/CMakeCache.txt"; }; then
        say "$folder was configured for another place or generator: anew"
        rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
    fi
    say "building $1"
    # Packages that came later bring plug-ins and tests: `./run test` installs more than `./run train`.
    if [ ! -f "$folder/build.ninja" ] || [ ! -f "$folder/CMakeCache.txt" ] ||
        [ /var/lib/dpkg/status -nt "$folder/build.ninja" ]; then
        cmake --preset "$1" >"$folder/build.log" 2>&1 || {
            cat "$folder/build.log"
            echo "run: cmake could not configure the preset $1" >&2
            return 1
        }
        touch "$folder/build.ninja"
    fi
    if ! ${build_nice:-} cmake --build --preset "$1" -j "$jobs" >"$folder/build.log" 2>&1; then
        grep -v '^\[[0-9]*/[0-9]*\] [A-Z]' "$folder/build.log" | tail -n 100
        echo "run: the preset $1 does not build (all of the output: $folder/build.log)" >&2
        return 1
    fi
    if [ "$1" = release ]; then
        ln -sf build/compile_commands.json compile_commands.json
    fi
}
