# abi.awk - what the preprocessor leaves of the public headers (cc -E -dD), as plain C that a person can
# read and a compiler can take: a line a function, a field, an enum's value with its number, a constant.
# Sections name the library. Used by scripts/check_abi; -v comm="HEADER..." names the headers of
# libtrireme-comm, -v series=".so.N" what follows the name of a library.

BEGIN {
    print "/*"
    print " * abi.h - what programs that are built against these libraries rely on: recorded by"
    print " * scripts/check_abi --record, which compares the public headers with it."
    print " */"
    print "#include <stdbool.h>"
    print "#include <stddef.h>"
    print "#include <stdint.h>"
    print "#include <stdio.h>"
    section = ""
}

/^# [0-9]+ "/ {
    header = $3
    gsub(/"/, "", header)
    inside = header ~ /(^|\/)include\/trireme\/[a-z0-9_]+\.h$/
    sub(/.*\//, "", header)
    next
}
!inside { next }

# Constants that are numbers or texts; a release changes those of its version.
/^#define TRI_[A-Z0-9_]+ ("[^"]*"|\(?[-0-9(].*|U?INT[0-9]+_C\([-0-9]+\))$/ && !/^#define TRI_VERSION_/ {
    begin_section()
    print
    next
}
# Macros that make a value of their arguments are built into programs as well.
/^#define TRI_[A-Z0-9_]*[A-Z0-9]\([^)]*\) \(/ {
    begin_section()
    print
    next
}
# Of other macros the name and the parameters: sources use them. NAME_ is for other macros.
/^#define (TRI_|tri_)[A-Za-z0-9_]*[A-Za-z0-9][ (]/ && !/^#define TRI_(VERSION_[A-Z]+|API|MUST_CHECK|PRINTF|BEGIN_DECLS|END_DECLS)[ (]/ {
    match($0, /^#define [A-Za-z0-9_]+(\([^)]*\))?/)
    begin_section()
    print substr($0, 1, RLENGTH)
}
/^#/ { next }

{
    gsub(/[ \t]+/, " ")
    text = text " " $0
    if ($0 !~ /[;}]/) next
    while (cut()) ;
}

# Takes one declaration off the text, if it has a whole one.
function cut(    i, c, depth, n) {
    depth = 0
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "{") depth++
        if (c == "}" && --depth == 0 && substr(text, 1, i) ~ /\) ?\{/ && substr(text, 1, i) ~ /^ *(__attribute__[^{]*|)(static|inline)/) {
            text = substr(text, i + 1)
            return 1
        }
        if (c == ";" && depth == 0) {
            declaration(substr(text, 1, i))
            text = substr(text, i + 1)
            return 1
        }
    }
    return 0
}

function begin_section(    library) {
    library = header == "models.h" ? "libtrireme-models" : index(" " comm " ", " " header " ") ? "libtrireme-comm" : "libtrireme"
    if (library == section) return
    section = library
    printf "\n/* --- %s%s --- */\n", library, series
}

function declaration(one,    i, c, depth, level, out, is_enum, n, part, at) {
    while (i = index(one, "__attribute__")) { # with its brackets
        for (at = i; substr(one, at, 1) != "("; at++) ;
        level = 0
        do {
            c = substr(one, at++, 1)
            if (c == "(") level++
            if (c == ")") level--
        } while (level > 0)
        one = substr(one, 1, i - 1) substr(one, at)
    }
    gsub(/[ \t]+/, " ", one)
    sub(/^ /, "", one)
    sub(/ ;$/, ";", one)
    gsub(/\( /, "(", one)
    gsub(/_Bool/, "bool", one)
    if (one ~ /^;?$/ || one in said) return # a header may repeat what another declares
    said[one] = 1
    begin_section()
    if (one ~ /^static /) return
    if (one !~ /\{/) {
        print one
        return
    }
    is_enum = one ~ /^(typedef )?enum /
    i = index(one, "{")
    print substr(one, 1, i)
    match(one, /\}[^}]*$/)
    out = substr(one, RSTART)
    one = substr(one, i + 1, RSTART - i - 1)
    if (is_enum) {
        at = 0
        n = split(one, part, /,/)
        for (i = 1; i <= n; i++) {
            sub(/^ /, "", part[i])
            sub(/ $/, "", part[i])
            if (part[i] == "") continue
            if (part[i] ~ /= ?-?[0-9]+$/) {
                at = part[i]
                sub(/.*= ?/, "", at)
                at += 0
            } else if (part[i] ~ /=/) at = "unknown"
            else if (at != "unknown") part[i] = part[i] " = " at
            print "    " part[i] ","
            if (at != "unknown") at++
        }
    } else {
        level = 1
        part[1] = ""
        n = length(one)
        for (i = 1; i <= n; i++) {
            c = substr(one, i, 1)
            if (c == " " && part[1] == "") continue
            if (c == "}") level--
            part[1] = part[1] c
            if (c == "{") level++
            if (c == "{" || c == ";") {
                printf "%*s%s\n", 4 * (level - (c == "{")), "", part[1]
                part[1] = ""
            }
        }
    }
    print out
}
