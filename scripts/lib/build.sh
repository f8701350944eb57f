# build.sh - configure and build a preset. Sourced by ./run, after progress.sh.

jobs=${TRI_JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)}

# preset_folder NAME: where CMakePresets.json builds it.
preset_folder() {
    if [ "$1" = release ]; then echo build; else echo "build/$1"; fi
}

# follow_build: ninja's output; it counts steps, of which some are a hundred times longer than others.
follow_build() {
    progress_begin
    while read -r line; do
        case $line in
        '['*/*']'*)
            line=${line#'['}
            line=${line%%']'*}
            progress_tick
            progress "step ${line%/*} of ${line#*/}, $(clock $progress_seconds)$(progress_left "${line%/*}" "${line#*/}")"
            ;;
        esac
    done
    progress_clear
    progress_tick
    echo "    built in $(clock $progress_seconds)"
}

# build_preset NAME [TARGET...]: all of it or these. 1 if it does not build; then the output was shown
# and lies in FOLDER/build.log.
build_preset() {
    preset=$1
    shift
    folder=$(preset_folder "$preset")
    mkdir -p "$folder"
    # CMake refuses a cache of another place (a tree that was copied or moved) or of another
    # generator (of `cmake -B build`).
    if [ -f "$folder/CMakeCache.txt" ] &&
        ! { grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "$folder/CMakeCache.txt" &&
            grep -qx 'CMAKE_GENERATOR:INTERNAL=Ninja' "$folder/CMakeCache.txt"; }; then
        say "$folder was configured for another place or generator: configuring it again"
        rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
    fi
    say "building $preset ($folder/build.log)"
    # Packages that came later bring plug-ins and tests: `./run test` installs more than `./run train`.
    if [ ! -f "$folder/build.ninja" ] || [ ! -f "$folder/CMakeCache.txt" ] ||
        [ /var/lib/dpkg/status -nt "$folder/build.ninja" ]; then
        cmake --preset "$preset" >"$folder/build.log" 2>&1 || {
            cat "$folder/build.log"
            echo "run: cmake could not configure the preset $preset" >&2
            return 1
        }
        touch "$folder/build.ninja"
    fi
    if ! logged "$folder/build.log" follow_build ${build_nice:-} cmake --build --preset "$preset" -j "$jobs" \
        ${1:+--target "$@"}; then
        grep -v '^\[[0-9]*/[0-9]*\] [A-Z]' "$folder/build.log" | tail -n 100
        echo "run: the preset $preset does not build (all of the output: $folder/build.log)" >&2
        return 1
    fi
    if [ "$preset" = release ]; then
        ln -sf build/compile_commands.json compile_commands.json
    fi
}
