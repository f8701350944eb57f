# tree.awk - the rules of check_tree about C files; strip.awk comes before it.

function bad(why) {
    printf "%s:%d: %s\n", FILENAME, FNR, why
}

# calls(text, list): the first function of the list that the text calls, or "".
function calls(text, list, n, i, name) {
    if (text !~ /\(/) return ""
    n = split(list, name, " ")
    for (i = 1; i <= n; i++)
        if (index(text, name[i]) && text ~ ("(^|[^A-Za-z0-9_>.])" name[i] "[ \t]*\\(")) return name[i]
    return ""
}

BEGIN {
    banned["everywhere"] = "atoi atol atoll atof sprintf vsprintf strcpy strcat gets system popen " \
        "strtok tmpnam mktemp rand srand alloca"
    why["everywhere"] = "hides errors or is not safe"
    banned["jump"] = "longjmp"
    why["jump"] = "only the wrappers of libraries that fail by a jump do that"
    banned["alloc"] = "malloc calloc realloc reallocarray aligned_alloc posix_memalign free strdup strndup asprintf vasprintf"
    why["alloc"] = "memory comes from base/alloc.h"
    banned["exit"] = "exit _exit _Exit abort quick_exit"
    why["exit"] = "a library does not end its program"
    banned["print"] = "printf vprintf puts putchar perror"
    why["print"] = "a library does not print; TRII_LOG or TRII_FAIL"
    banned["sleep"] = "sleep usleep nanosleep clock_nanosleep thrd_sleep"
    why["sleep"] = "wait for the event, not for time"
    banned["try"] = "TRI_TRY"
    why["try"] = "TRI_TRY is for programs"
    banned["skip"] = "skip"
    why["skip"] = "a test that is skipped proves nothing"
    banned["near"] = "assert_float_equal assert_float_not_equal assert_double_equal assert_double_not_equal"
    why["near"] = "passes for a NaN; CHECK_NEAR of testing/check.h"
    max_lines["code"] = 700
    max_lines["test"] = 900
}

# Of the file that was just read.
function long_file(limit) {
    limit = max_lines[is_test ? "test" : "code"]
    if (last_file != "" && last_line > limit)
        printf "%s:%d: longer than %d lines: is there more than one idea in it?\n", last_file, last_line, limit
}

function check(group, text, name) {
    name = calls(text, banned[group])
    if (name != "") bad(name "(): " why[group])
}

FNR == 1 {
    long_file()
    forget()
    name = FILENAME
    sub(/.*\//, "", name)
    if (name in seen) bad("a second file of the name " name ": " seen[name])
    seen[name] = FILENAME
    is_test = FILENAME ~ /_test\.c$/ || FILENAME ~ /^tests\//
    library = FILENAME ~ /^(src|plugins)\// && !is_test
    os = FILENAME ~ /^src\/(launch\/)?os\//
}

{
    last_file = FILENAME
    last_line = FNR
    # A banner of a section, `/* --- title ---- */` or the first line of a comment, ends in column 80:
    # clang-format breaks longer ones in two.
    if ($0 ~ /^[ \t]*\/\* ---/ && (length($0) != 80 || $0 !~ /--( \*\/)?$/) || $0 ~ /^[ \t]*\/\* ?(-----|===)/)
        bad("a banner is `/* --- title ---- */`, of 80 columns")
    if (open_banner && $0 ~ /^[ \t]*\*\/$/) bad("a banner is one line")
    open_banner = $0 ~ /^[ \t]*\/\* ---.*-$/
    line = code($0)
    if (line ~ /^[ \t]*$/) next
    if (line ~ /^[ \t]*#[ \t]*pragma[ \t]+omp/) bad("threads belong to device/cpu/parallel.c")
    check("everywhere", line)
    if (FILENAME !~ /^src\/train\/image\/(jpeg|png)\.c$/) check("jump", line)
    if (!os) check("sleep", line)
    if (is_test) check("skip", line)
    check("near", line)
    if (!library) next
    if (FILENAME != "src/base/alloc.c") check("alloc", line)
    # The environment of others (RANK, PET_...) may be read; our own variables are one table.
    if ($0 ~ /getenv\("TRI_/) bad("our variables are read through base/param.h")
    if (!os) check("exit", line)
    check("print", line)
    check("try", line)
    # It may say when lines that the program prints are flushed.
    if (line ~ /(^|[^A-Za-z0-9_])stdout([^A-Za-z0-9_]|$)/ && line !~ /(setvbuf\(stdout, (NULL, _IOLBF, 0|lines, _IOLBF, sizeof\(lines\))\)|__f(bufsize|lbf)\(stdout\))/)
        bad("a library does not print")
}

END {
    long_file()
}
