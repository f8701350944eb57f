# strip.awk - code(line): the line of C without comments and without what is in quotes. Call it on
# every line in order and forget() at the start of a file; a comment may span lines.

function forget() {
    in_comment = 0
}

function code(line, out, c, two, i, n) {
    if (!in_comment && line !~ /["'\/]/) return line
    out = ""
    n = length(line)
    for (i = 1; i <= n; i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i++; out = out " " }
            continue
        }
        if (two == "/*") { in_comment = 1; i++; continue }
        if (two == "//") break
        out = out c
        if (c == "\"" || c == "'") {
            quote = c
            while (++i <= n) {
                c = substr(line, i, 1)
                if (c == "\\") { i++; continue }
                if (c == quote) { out = out c; break }
            }
        }
    }
    return out
}
