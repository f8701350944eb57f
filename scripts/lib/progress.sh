# progress.sh - says how far something is. Sourced by ./run.
#
# On a terminal it is one line that is redrawn; elsewhere there is a new line a minute, so that a log
# stays short.

progress_redraws=0
if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then progress_redraws=1; fi

say() {
    echo "==> $*"
}

# clock SECONDS: as 1:05 or 1:02:05.
clock() {
    if [ "$1" -ge 3600 ]; then
        printf '%d:%02d:%02d' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60))
    else
        printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
    fi
}

# progress_begin: now it begins; progress_now and progress_seconds are the time and how long it takes so far.
progress_begin() {
    progress_start=$(date +%s)
    progress_told=$progress_start
    progress_tick
}

progress_tick() {
    progress_now=$(date +%s)
    progress_seconds=$((progress_now - progress_start))
}

# progress TEXT: how far it is.
progress() {
    if [ "$progress_redraws" = 1 ]; then
        printf '\r    %s\033[K' "$1"
    elif [ $((progress_now - progress_told)) -ge 60 ]; then
        progress_told=$progress_now
        echo "    $1"
    fi
}

# progress_clear: makes room for other lines, and at the end for the next.
progress_clear() {
    [ "$progress_redraws" = 0 ] || printf '\r\033[K'
}

# progress_left DONE ALL: how long the rest takes if it is as fast; nothing where that is not known yet.
progress_left() {
    [ "$1" -gt 0 ] && [ "$progress_seconds" -ge 5 ] || return 0
    echo ", about $(clock $((progress_seconds * ($2 - $1) / $1))) left"
}

# logged LOG READER COMMAND...: runs the command; its output is in the file LOG and, while it runs, the
# input of READER, which shows how far it is. The status is the command's. READER is a loop of
# `read`, not awk: awk may wait for a whole block of lines.
logged() {
    logged_to=$1
    logged_reader=$2
    shift 2
    {
        logged_status=$({
            {
                logged_code=0
                "$@" 2>&1 3>&- 4>&- </dev/null || logged_code=$?
                echo "$logged_code" >&4
            } | tee "$logged_to" 3>&- 4>&- | "$logged_reader" >&3 3>&- 4>&-
        } 4>&1)
    } 3>&1
    return "$logged_status"
}
