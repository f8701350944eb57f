# man_markdown.awk - a Markdown page as a manual page: headings, paragraphs, lists, fenced code,
# tables (one line a row), `code`, **bold** and links. POSIX awk. Variables: name, section, version.
# The first heading is `# NAME - summary`.

function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return text
}

function inline(text,    out, label) {
    text = escape(text)
    while (match(text, /\[[^]]*\]\([^)]*\)/)) {
        label = substr(text, RSTART + 1, RLENGTH - 1)
        sub(/\]\(.*$/, "", label)
        text = substr(text, 1, RSTART - 1) label substr(text, RSTART + RLENGTH)
    }
    out = ""
    while (match(text, /`[^`]*`|\*\*[^*]*\*\*/)) {
        label = substr(text, RSTART, RLENGTH)
        gsub(/^(`|\*\*)|(`|\*\*)$/, "", label)
        out = out substr(text, 1, RSTART - 1) "\\fB" label "\\fR"
        text = substr(text, RSTART + RLENGTH)
    }
    out = out text
    if (out ~ /^[.']/) out = "\\&" out
    return out
}

/^```/ {
    print fenced ? ".EE\n.in" : ".PP\n.in 1n\n.EX" # help has lines of up to 79 characters
    fenced = !fenced
    next
}
fenced {
    line = escape($0)
    if (line ~ /^[.']/) line = "\\&" line
    print line
    next
}
/^<!--/ { next }
/^# / {
    title = substr($0, 3)
    summary = title
    sub(/^[^-]* - /, "", summary)
    printf ".TH %s %s \"\" \"Trireme %s\" \"Trireme manual\"\n", toupper(name), section, version
    print ".SH NAME"
    print escape(name) " \\- " escape(summary)
    print ".SH DESCRIPTION"
    next
}
/^## / { print ".SH \"" escape(substr($0, 4)) "\""; table = 0; next }
/^### / { print ".SS \"" escape(substr($0, 5)) "\""; table = 0; next }
/^\|[ ]*-/ { next }
/^\|/ {
    row = $0
    sub(/^\|[ ]*/, "", row)
    sub(/[ ]*\|[ ]*$/, "", row)
    if (!table) { table = 1; next } # the heads of the columns
    n = split(row, cell, / +\| +/)
    print ".TP"
    print inline(cell[1])
    for (i = 2; i <= n; i++) print inline(cell[i]) (i < n ? ";" : "")
    next
}
/^[-*] / { table = 0; print ".IP \\(bu 2"; print inline(substr($0, 3)); listed = 1; next }
/^[0-9]+\. / { table = 0; match($0, /^[0-9]+\./); print ".IP " substr($0, 1, RLENGTH) " 4"; print inline(substr($0, RLENGTH + 2)); listed = 1; next }
/^[ \t]*$/ { table = 0; blank = 1; next }
{
    line = $0
    if (listed && line ~ /^ /) {
        sub(/^ +/, "", line)
        print inline(line)
        blank = 0
        next
    }
    if (blank || listed) print ".PP"
    blank = listed = 0
    print inline(line)
}
