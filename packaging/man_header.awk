# man_header.awk - a public header as manual pages: one for the whole, whose description is its head
# comment, and one for each group of declarations that stand under one comment (a comment that says
# "the same" or "as" belongs to the group before; a type without a comment to the functions after it,
# if they take it). A comment `--- title ---` begins a section; what it
# says holds for all of its functions and stands on their pages too.
# POSIX awk. Variables: page, header, version; folder: where the pages go.

# Text for roff: backslashes, and lines that would be requests.
function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}

# A line of an example; its comment goes above it if there is no room after it.
function example_line(line,    at, indent) {
    at = index(line, "// ")
    if (!fits(line) && at > 0) {
        match(line, /^ */)
        indent = substr(line, 1, RLENGTH)
        print escape(indent substr(line, at)) >out
        line = substr(line, 1, at - 1)
        sub(/ +$/, "", line)
    }
    code_line(line)
}

# Lines from..to, which are indented. Where each but the first of an entry is indented deeper and each
# entry is a name, two blanks and what it is: a list. Else they stand as they are.
function indented(lines, from, to, hangs,    i, base, list, line) {
    match(lines[from], /^ */)
    base = RLENGTH
    list = 1
    for (i = from; i <= to; i++) {
        match(lines[i], /^ */)
        if (RLENGTH < base || lines[i] ~ /^ *$/) list = 0
        if (RLENGTH == base && lines[i] !~ /^ *[A-Za-z_.]+(, [A-Za-z_.]+)*  +[^ ]/) list = 0
    }
    if (!list && hangs) { # what began in the line before
        for (i = from; i <= to; i++) {
            line = lines[i]
            sub(/^ */, "", line)
            print escape(line) >out
        }
        return
    }
    if (!list) {
        print ".EX" >out
        for (i = from; i <= to; i++) example_line(lines[i])
        print ".EE" >out
        return
    }
    for (i = from; i <= to; i++) {
        line = lines[i]
        match(line, /^ */)
        if (RLENGTH == base) {
            sub(/^ */, "", line)
            match(line, /  +/)
            print ".TP" >out
            print ".B " escape(substr(line, 1, RSTART - 1)) >out
            line = substr(line, RSTART + RLENGTH)
        }
        sub(/^ */, "", line)
        print escape(line) >out
    }
    print ".PP" >out
}

# A comment's lines as paragraphs. What begins with a word and a colon has its lines below it
# indented.
function paragraphs(text,    lines, n, i, from, hangs) {
    n = split(text, lines, "\n")
    hangs = 0
    for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^[ \t]*$/) {
            if (i < n) print ".PP" >out
            hangs = 0
            continue
        }
        if (lines[i] ~ /^  /) {
            from = i
            # The blank lines inside of an example are a part of it.
            while (i < n && (lines[i + 1] ~ /^  / ||
                             (lines[i + 1] ~ /^[ \t]*$/ && lines[i + 2] ~ /^  /))) i++
            indented(lines, from, i, hangs)
            hangs = 0
            continue
        }
        hangs = lines[i] ~ /^(Blocks|Errors|Cost|Threads|Result|Source): / ||
            (lines[i] ~ /^[A-Za-z_]+(, [A-Za-z_]+)*( \([^)]*\))?:( |$)/ && lines[i + 1] ~ /^  /)
        if (hangs) print ".HP 2" >out
        print escape(lines[i]) >out
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
    if (match(text, /^#define (TRI_[A-Z_]*[A-Z]|tri_[a-z0-9_]+)\(/)) note_name(substr(text, 9, RLENGTH - 9))
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
    ours = ours (ours == "" ? "" : " ") name
}

# One block: declarations, and the comment that stood above them.
function flush_block() {
    if (code != "") {
        gsub(/\n;/, ";", code) # of which declaration() has left no more
        body[++n_body] = code
        why[n_body] = comment
        kind[n_body] = "block"
        names_of[n_body] = ours
        ours = ""
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

# The part that only wraps functions for call sites; of what is another in C++, that of C.
/^#ifndef TRI_NO_SITES/ { skipping = 1; plus = 0; next }
/^#ifdef __cplusplus/ { skipping = 1; plus = 1; next }
skipping == 1 && plus && /^#else/ { skipping = 0; next }
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
    if (depth == 0 && /^typedef (struct|enum) .*\{$/ && code != "") flush_block()
    line = declaration($0)
    code = code (code == "" ? "" : "\n") line
    if (depth == 0) note_names(line)
    opened = line
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", opened)
    continued = opened ~ /\\$/
    depth += gsub(/\{/, "", opened) - gsub(/\}/, "", opened)
}

function begin_page(name, list, summary) {
    out = folder "/" name ".3"
    gsub(/\n/, " ", summary)
    sub(/ +$/, "", summary)
    if (summary !~ /\.\.$/) sub(/\.$/, "", summary)
    printf ".TH %s 3 \"\" \"Trireme %s\" \"Trireme manual\"\n", toupper(name), version >out
    print ".SH NAME" >out
    print escape(list) " \\- " escape(summary) >out
    print ".SH SYNOPSIS" >out
    print ".EX" >out
    print "#include <trireme/" header ".h>" >out
}

function end_page(more) {
    print ".SH \"SEE ALSO\"" >out
    if (more != "") print ".BR " more " (3)," >out
    print ".BR trireme (7)," >out
    print ".BR trirun (1)," >out
    print ".BR trireme (1)" >out
    close(out)
}

# Whether the line fits a terminal of 80 columns, indented as examples are.
function fits(line) { return length(line) <= 72 }

# The text of a comment, in lines of their own above what it is about.
function comment_lines(indent, text,    words, n, i, line) {
    gsub(/\n[ \t]*(\* ?)?/, " ", text)
    if (fits(indent "/* " text " */")) {
        print escape(indent "/* " text " */") >out
        return
    }
    n = split(text, words, / +/)
    line = indent "/*"
    for (i = 1; i <= n; i++) {
        if (!fits(line " " words[i] " */") && line !~ /\*$/) {
            print escape(line) >out
            line = indent " *"
        }
        line = line " " words[i]
    }
    print escape(line " */") >out
}

# A line of code without a comment; its arguments may go on in the next.
function code_line(line,    at, indent, i) {
    while (!fits(line)) {
        for (at = 72; at > 0 && substr(line, at, 2) != ", "; at--) continue
        match(line, /^ */)
        indent = RLENGTH >= 8 ? RLENGTH : RLENGTH + 4 # arguments stay under each other
        if (at <= indent && RLENGTH > 8) {
            line = "        " substr(line, RLENGTH + 1)
            continue
        }
        if (at <= indent) at = index(line, "(")
        if (at <= indent || at > 72 || at == length(line)) break
        if (substr(line, at, 1) == "(") {
            print escape(substr(line, 1, at)) >out
            line = sprintf("%" indent "s%s", "", substr(line, at + 1))
            continue
        }
        print escape(substr(line, 1, at)) >out
        line = sprintf("%" indent "s%s", "", substr(line, at + 2))
    }
    print escape(line) >out
}

# Without the functions among the arguments, "(*name)(void *arg)".
function bare(line) {
    gsub(/\(\*[a-z_]*\)\([^()]*\)/, "", line)
    return line
}

# A prototype over several lines of which one does not fit: its arguments again, under each other.
function prototype(text,    at, indent, line, part, n, i) {
    gsub(/\n */, " ", text)
    at = index(text, "(")
    indent = at < 40 ? at : 8
    line = substr(text, 1, at)
    n = split(substr(text, at + 1), part, /, /)
    if (indent == 8) {
        print escape(line) >out
        line = sprintf("%8s", "")
    }
    for (i = 1; i <= n; i++) {
        while (i < n && bare(part[i]) ~ /\(/) { # of a function that is an argument
            part[i + 1] = part[i] ", " part[i + 1]
            i++
        }
        part[i] = part[i] (i < n ? "," : "")
        if (line ~ /,$/ && !fits(line " " part[i])) {
            print escape(line) >out
            line = sprintf("%" indent "s%s", "", part[i])
        } else
            line = line (line ~ /,$/ ? " " : "") part[i]
    }
    print escape(line) >out
}

# How many of lines[i..n] are a prototype that has to be wrapped again, or 0.
function wide_prototype(lines, i, n,    k, wide) {
    if (bare(lines[i]) !~ /^[a-z][^({]*\([^()]*$/ || lines[i] ~ /\/\*/) return 0
    for (k = i; k <= n; k++) {
        if (lines[k] ~ /\/\*|\{/ || (k > i && bare(lines[k]) ~ /\(/)) return 0
        wide = wide || !fits(lines[k])
        if (lines[k] ~ /\);$/) return wide ? k - i + 1 : 0
    }
    return 0
}

function code_lines(text,    lines, n, i, k, at, said, indent, line) {
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++) {
        line = lines[i]
        k = wide_prototype(lines, i, n)
        if (k > 0) {
            while (--k > 0) line = line "\n" lines[++i]
            prototype(line)
            continue
        }
        if (line ~ /^#define/ && line ~ /\\$/) { # what it expands to is nobody's business
            while (lines[i] ~ /\\$/) i++
            sub(/ *\\$/, "", line)
            print escape(line) >out
            continue
        }
        at = index(line, "/*")
        if (at == 0) {
            code_line(line)
            continue
        }
        said = substr(line, at + 2)
        while (said !~ /\*\// && i < n) said = said "\n" lines[++i]
        if (fits(line) && said !~ /\n/) {
            print escape(line) >out
            continue
        }
        sub(/ *\*\/.*$/, "", said)
        sub(/^ */, "", said)
        match(line, /^ */)
        indent = substr(line, 1, RLENGTH)
        line = substr(line, 1, at - 1)
        sub(/ +$/, "", line)
        comment_lines(indent, said)
        if (line != "") code_line(line)
    }
}

# What a comment says before its second sentence or paragraph.
function first_sentence(text,    at, before) {
    gsub(/\n\n.*/, "", text)
    gsub(/\n/, " ", text)
    for (at = 2; at < length(text); at++) {
        if (substr(text, at, 2) !~ /[.;:] /) continue
        before = substr(text, 1, at - 1)
        if (before !~ /(\.|e\.g)$/ && before !~ /\([^()]*$/) { # not "0 .. n", nor within brackets
            text = before
            break
        }
    }
    gsub(/[ \t]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ \([^()]*$/, "", text) # cut within brackets
    return text
}

# Whether the block has no page of its own: nothing is declared, or its comment needs the one before.
function continues(i) {
    return why[i] == "" || why[i] ~ /^(The same|As |Likewise)/
}

# Whether the block is a type and nothing else, without a comment.
function bare_type(i) {
    return kind[i] == "block" && why[i] == "" && names_of[i] ~ /^tri_[a-z0-9_]+$/ &&
        body[i] ~ /^typedef (struct|enum)/
}

# The block with a comment whose functions take the type that block i is (others may stand between
# them): the type begins their page. 0: no such one.
function led_by(i,    taker) {
    if (!bare_type(i)) return 0
    taker = i + 1
    while (bare_type(taker)) taker++
    return kind[taker] == "block" && !continues(taker) &&
        body[taker] ~ ("[^a-z0-9_]" names_of[i] "[^a-z0-9_]") ? taker : 0
}

# Options that the page's functions take and that stand on a page of their own.
function other_options(first, last,    i, rest, name, all, found) {
    for (i = first; i <= last; i++) all = all " " names_of[i]
    for (i = first; i <= last; i++) {
        rest = kind[i] == "block" ? body[i] : ""
        while (match(rest, /tri_[a-z0-9_]+_options/)) {
            name = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            if (index(all " ", " " name " ") == 0) {
                all = all " " name
                found = found (found == "" ? "" : " (3),\n.BR ") name
            }
        }
    }
    return found
}

# The page of blocks first..last, and those that lead to it. It is called after the first that has a
# comment.
function write_group(first, last,    i, n, list, all, parts, main, others) {
    main = led_by(first) ? led_by(first) : first
    list = names_of[main]
    for (i = first; i <= last; i++) {
        if (i != main && kind[i] == "block" && names_of[i] != "")
            list = list (list == "" ? "" : " ") names_of[i]
    }
    if (list == "") return
    n = split(list, all, " ")
    parts = all[1]
    for (i = 2; i <= n; i++) parts = parts ", " all[i]
    others = other_options(first, last)
    begin_page(all[1], parts, why[main] != "" ? first_sentence(why[main]) : "part of " page)
    for (i = first; i <= last; i++) {
        if (i > first) print "" >out
        code_lines(body[i])
    }
    print ".EE" >out
    print ".SH DESCRIPTION" >out
    for (i = first; i <= last; i++) {
        if (why[i] == "") continue
        if (i > main) {
            print ".PP" >out
            gsub(/ /, ", ", names_of[i])
            print ".B " escape(names_of[i]) >out
            print ".br" >out
        }
        paragraphs(why[i])
    }
    if (section_text != "") {
        print ".SH \"" toupper(substr(section, 1, 1)) substr(section, 2) "\"" >out
        paragraphs(section_text)
    }
    end_page(page (others == "" ? "" : " (3),\n.BR " others))
    for (i = 2; i <= n; i++) {
        print ".so man3/" all[1] ".3" >(folder "/" all[i] ".3")
        close(folder "/" all[i] ".3")
    }
}

# The block that declares the name of the page as a function; 0: none.
function declares_page(    i) {
    for (i = 1; i <= n_body; i++)
        if (kind[i] == "block" && body[i] ~ ("[ *]" page "\\(")) return i
    return 0
}

# The line that declares it as a type; "": none.
function type_of_page(    i, k, n, lines) {
    for (i = 1; i <= n_body; i++) {
        n = kind[i] == "block" ? split(body[i], lines, "\n") : 0
        for (k = 1; k <= n; k++)
            if (lines[k] ~ ("^typedef .*[ *]" page ";")) {
                sub(/;.*/, ";", lines[k])
                return lines[k]
            }
    }
    return ""
}

# Where the header has the name of a function, the page is the function's first.
function write_whole(    i, list, summary, rest, at, own, type) {
    own = declares_page()
    type = type_of_page()
    # The first sentence is the summary, the rest the description.
    summary = head
    rest = ""
    at = index(head, "\n\n")
    if (at > 0) {
        summary = substr(head, 1, at - 1)
        rest = substr(head, at + 2)
    }
    begin_page(page, page, own && why[own] != "" ? first_sentence(why[own]) : summary)
    if (own) code_lines(body[own])
    else if (type != "") code_lines(type)
    print ".EE" >out
    if (own) {
        print ".SH DESCRIPTION" >out
        paragraphs(why[own])
        print ".SS \"" escape(header ".h") "\"" >out
        paragraphs(head)
    } else if (rest != "") {
        print ".SH DESCRIPTION" >out
        paragraphs(rest)
    }
    for (i = 1; i <= n_body; i++) {
        if (kind[i] == "section") {
            print ".SH \"" toupper(substr(body[i], 1, 1)) substr(body[i], 2) "\"" >out
        } else if (kind[i] == "text") {
            print ".PP" >out
            paragraphs(body[i])
        } else if (i != own) {
            if (i == 1) print ".SH DECLARATIONS" >out
            print ".PP" >out
            print ".EX" >out
            code_lines(body[i])
            print ".EE" >out
            if (why[i] != "") {
                print ".RS 4" >out
                paragraphs(why[i])
                print ".RE" >out
            }
        }
    }
    end_page("")
}

END {
    flush_block()
    write_whole()
    first = 0
    for (i = 1; i <= n_body; i++) {
        if (kind[i] == "block" && first > 0 && i <= led_by(first)) continue
        if (kind[i] == "block" && first > 0 && continues(i) && !led_by(i)) continue
        if (first > 0) write_group(first, i - 1)
        first = kind[i] == "block" ? i : 0
        if (kind[i] == "section") {
            section = body[i]
            section_text = kind[i + 1] == "text" ? body[i + 1] : ""
        }
    }
    if (first > 0) write_group(first, n_body)
}
