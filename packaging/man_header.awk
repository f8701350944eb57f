# man_header.awk - a public header as a manual page: its head comment is the description, a comment
# `--- title ---` begins a section, and each comment follows the declarations that it stands above.
# POSIX awk. Variables: page, header, version; aliases: the file for the names that are declared.

# Text for roff: backslashes, and lines that would be requests.
function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

# A comment's lines as paragraphs; lines indented deeper than text stand as they are.
function paragraphs(text,    lines, n, i, verbatim, line) {
    n = split(text, lines, "\n")
    verbatim = 0
    for (i = 1; i <= n; i++) {
        line = lines[i]
        if (line ~ /^[ \t]*$/) {
            if (i < n) print ".PP"
            continue
        }
        if (line ~ /^  /) {
            if (!verbatim) print ".EX"
            verbatim = 1
            print escape(line)
            # The blank lines inside of an example are a part of it.
            while (i < n && lines[i + 1] ~ /^[ \t]*$/ && lines[i + 2] ~ /^  /) {
                print ""
                i++
            }
        } else if (line ~ /^(Blocks|Errors|Cost|Threads|Result|Source): /) {
            print ".br"
            print escape(line)
        } else {
            print escape(line)
        }
        if (verbatim && (i == n || lines[i + 1] !~ /^  /)) {
            print ".EE"
            verbatim = 0
        }
    }
}

# A line of a declaration, without what only compilers read; arguments stay under each other.
function declaration(text,    removed) {
    if (depth == 0 && hanging > 0 && text ~ /^          /) {
        return substr(text, hanging + 1)
    }
    removed = length(text)
    gsub(/TRI_API |TRI_MUST_CHECK /, "", text)
    gsub(/ *TRI_PRINTF\([0-9, ]*\)/, "", text)
    hanging = removed - length(text)
    return text
}

function note_names(text,    rest, name) {
    rest = text
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", rest)
    while (match(rest, /tri_[a-z0-9_]+\(/)) {
        name = substr(rest, RSTART, RLENGTH - 1)
        if (rest !~ /^[ \t]*#/) note_name(name)
        rest = substr(rest, RSTART + RLENGTH)
    }
    if (match(text, /^typedef (struct|enum) tri_[a-z0-9_]+/)) {
        name = substr(text, RSTART, RLENGTH)
        sub(/^typedef (struct|enum) /, "", name)
        note_name(name)
    }
}

function note_name(name) {
    if (name in seen || name == page) return
    seen[name] = 1
    names[++n_names] = name
}

# One block: declarations, and the comment that stood above them.
function flush_block() {
    if (code != "") {
        body[++n_body] = code
        why[n_body] = comment
        kind[n_body] = "block"
        code = ""
        comment = ""
    } else if (comment != "") {
        body[++n_body] = comment
        kind[n_body] = "text"
        comment = ""
    }
}

function take_comment(text,    title, rest, at) {
    if (text ~ /^--- /) {
        flush_block()
        title = text
        rest = ""
        at = index(text, "\n")
        if (at > 0) {
            title = substr(text, 1, at - 1)
            rest = substr(text, at + 1)
        }
        sub(/^--- */, "", title)
        sub(/ *-+$/, "", title)
        sub(/^-+ */, "", rest)
        body[++n_body] = title
        kind[n_body] = "section"
        if (rest != "") {
            body[++n_body] = rest
            kind[n_body] = "text"
        }
        return
    }
    flush_block()
    comment = text
}

# What a comment says, without its stars.
function strip(line) {
    sub(/^[ \t]*\/\*\*?[ ]?/, "", line)
    sub(/[ ]*\*\/[ \t]*$/, "", line)
    sub(/^[ ]\*[ ]?/, "", line)
    return line
}

BEGIN { depth = 0; state = "head"; skipping = 0 }

state == "head" {
    text = strip($0)
    if (text ~ /^[a-z_]+\.h - /) sub(/^[a-z_]+\.h - /, "", text)
    if ($0 != "/*") head = head (head == "" ? "" : "\n") text
    if ($0 ~ /\*\//) state = "code"
    next
}

# The part that only wraps functions for call sites.
/^#ifndef TRI_NO_SITES/ || /^#ifdef __cplusplus/ { skipping = 1; next }
skipping > 0 && /^#if/ { skipping++; next }
skipping > 0 && /^#endif/ { skipping--; next }
skipping > 0 { next }
/^#(include|ifndef|endif|if|else)/ || /^#define TRIREME_[A-Z_]+_H$/ { next }
/^TRI_(BEGIN|END)_DECLS/ { next }

state == "comment" {
    text = text "\n" strip($0)
    if ($0 ~ /\*\//) {
        state = "code"
        sub(/\n$/, "", text)
        take_comment(text)
    }
    next
}

depth == 0 && /^\/\*/ && !continued {
    text = strip($0)
    if ($0 ~ /\*\/[ \t]*$/) take_comment(text)
    else state = "comment"
    next
}

/^[ \t]*$/ && depth == 0 { flush_block(); next }

{
    line = declaration($0)
    code = code (code == "" ? "" : "\n") line
    if (depth == 0) note_names(line)
    opened = line
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", opened)
    continued = opened ~ /\\$/
    depth += gsub(/\{/, "", opened) - gsub(/\}/, "", opened)
}

END {
    flush_block()
    # The first sentence is the summary, the rest the description.
    summary = head
    rest = ""
    at = index(head, "\n\n")
    if (at > 0) {
        summary = substr(head, 1, at - 1)
        rest = substr(head, at + 2)
    }
    gsub(/\n/, " ", summary)
    sub(/\.$/, "", summary)
    printf ".TH %s 3 \"\" \"Trireme %s\" \"Trireme manual\"\n", toupper(page), version
    print ".SH NAME"
    list = page
    for (i = 1; i <= n_names; i++) list = list ", " names[i]
    print escape(list) " \\- " escape(summary)
    print ".SH SYNOPSIS"
    print ".EX"
    print "#include <trireme/" header ".h>"
    print ".EE"
    if (rest != "") {
        print ".SH DESCRIPTION"
        paragraphs(rest)
    }
    for (i = 1; i <= n_body; i++) {
        if (kind[i] == "section") {
            print ".SH \"" toupper(substr(body[i], 1, 1)) substr(body[i], 2) "\""
        } else if (kind[i] == "text") {
            print ".PP"
            paragraphs(body[i])
        } else {
            if (!sectioned) print ".SH DECLARATIONS"
            print ".PP"
            print ".EX"
            n = split(body[i], lines, "\n")
            for (j = 1; j <= n; j++) print escape(lines[j])
            print ".EE"
            if (why[i] != "") {
                print ".RS 4"
                paragraphs(why[i])
                print ".RE"
            }
        }
        sectioned = 1
    }
    print ".SH \"SEE ALSO\""
    print ".BR trireme (7),"
    print ".BR trirun (1),"
    print ".BR trireme (1)"
    for (i = 1; i <= n_names; i++) print names[i] >aliases
    close(aliases)
}
