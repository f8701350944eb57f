# abi_words.awk - what differs between two records, in words. Read in this order: the declarations
# (api.awk) of the recorded one with -v seen=old, of the headers with seen=new, and the report of
# `abidiff --leaf-changes-only --no-added-syms` with seen=report (assignments between the files).
# Prints FILE:LINE: breaks programs: ..., breaks sources: ... or new: ...; used by scripts/check_abi.

function tell(name, what) {
    print (name in place ? place[name] : record ":1") ": " what
}
# About a field, a function or a value that the report mentions: nothing more need be said of it.
function breaks(name, what) {
    tell(name, "breaks programs: " what)
    told[name] = 1
    n_breaks++
}
function bytes(bits) {
    return bits % 8 ? bits " bits" : bits / 8
}
# What is in the n-th pair of quotes.
function quoted(text, n,    part) {
    split(text, part, /'/)
    return part[2 * n]
}
function last_word(text) {
    sub(/\[.*/, "", text)
    sub(/.*[ *(]/, "", text)
    sub(/\).*/, "", text)
    return text
}

seen != "report" {
    split($0, column, "\t")
    kind = column[1]
    name = column[3]
    if (kind == "field") name = column[4] "." name
    what[seen, name] = kind "\t" column[4] "\t" column[5] "\t" column[6]
    if (seen == "new" || !(name in place)) place[name] = column[2]
    if (!(name in known)) names[++n_names] = name
    known[name] = 1
    if (kind == "value") enum_of[name] = column[4]
    next
}

# --- functions and variables ---
/^ *\[D\] 'function / {
    match($0, /\{[^}]*\}/)
    name = substr($0, RSTART + 1, RLENGTH - 2)
    sub(/@.*/, "", name)
    breaks(name, name " is gone: programs that call it do not start")
    next
}
/^ *\[D\] / {
    name = last_word(quoted($0, 1))
    sub(/^abi_holds_/, "", name)
    breaks(name, name " is gone: what has it as an argument or a field is another call or place now")
    next
}
/^ *\[C\] / {
    end_block()
    name = quoted($0, 1)
    sub(/\(.*/, "", name)
    name = last_word(name)
    sub(/^abi_holds_/, "", name)
    block = "call"
    next
}
# --- structs and enums ---
/^'(struct|union|enum) / {
    end_block()
    block = $1
    sub(/'/, "", block)
    name = $2
    next
}
/^[A-Z0-9]/ || /^$/ {
    if (block == "call") end_block()
    next
}
block != "" { line[++n_lines] = $0 }
END {
    end_block()
    the_rest()
    if (n_breaks) exit 3
}

function end_block() {
    if (block == "call") end_call()
    else if (block == "enum") end_enum()
    else if (block != "") end_struct()
    block = ""
    n_lines = 0
}

function end_call(    i, text, call, indent, n, before) {
    # A struct that is passed by value changes each call; the change is told of the struct itself.
    for (i = 1; i <= n_lines; i++)
        if (match(line[i], /(underlying|of) type '(struct|union|enum) [^']*'.* changed:$/)) {
            call = name
            name = quoted(line[i], 1)
            block = name
            sub(/ .*/, "", block)
            sub(/.* /, "", name)
            match(line[i], /^ */)
            indent = RLENGTH
            n = 0
            for (i++; i <= n_lines && match(line[i], /^ */) && RLENGTH > indent; i++) line[++n] = substr(line[i], indent + 1)
            n_lines = n
            before = n_breaks
            if (block == "enum") end_enum()
            else end_struct()
            if (n_breaks > before || name in told) {
                told[call] = 1
                return
            }
            breaks(call, call ": " name " changed: programs call it as it was")
            return
        }
    text = ""
    for (i = 1; i <= n_lines; i++) {
        if (line[i] ~ /type size|underlying type .* changed.*reported earlier/) continue
        if (line[i] ~ /underlying type '/) break # a typedef, of which the_rest() tells
        sub(/^ */, "", line[i])
        sub(/ at [^ ]+:[0-9]+:[0-9]+/, "", line[i])
        gsub(/typedef |entity changed |compatible type /, "", line[i])
        text = text (text == "" ? "" : " ") line[i]
    }
    sub(/:$/, "", text)
    breaks(name, name ": " text ": programs call it as it was")
}

function end_enum(    i, value, number, told_any) {
    for (i = 1; i <= n_lines; i++) {
        if (line[i] !~ /^ *'[a-z0-9_]+::/) continue
        value = quoted(line[i], 1)
        sub(/.*::/, "", value)
        number = quoted(line[i], 2)
        if (line[i] ~ / from value /)
            breaks(value, value " was " number " and is " quoted(line[i], 3) ": programs have the old number built in; new values come last")
        else if (section_of(i) == "deletion")
            breaks(value, value " (" number ") is gone: programs have the number built in")
    }
    for (i = 1; i <= n_lines; i++)
        if (line[i] ~ /type size changed/) breaks(name, name ": " line[i])
}

# The heading above line i: insertion, deletion or change.
function section_of(i) {
    for (; i > 0; i--) {
        if (line[i] ~ /insertions?:$/) return "insertion"
        if (line[i] ~ /deletions?:$/) return "deletion"
        if (line[i] ~ /changes?:$/) return "change"
    }
    return ""
}

function end_struct(    i, size, reserved, field, part, now, from, to, n) {
    # Where the reserved room began, if the report mentions it.
    reserved = -1
    size = 0
    for (i = 1; i <= n_lines; i++) {
        if (line[i] ~ /^  type size changed from/) size = 1
        if (line[i] ~ /reserved(\[[0-9]+\])?'.*at offset/ && section_of(i) == "deletion") reserved = number_after(line[i], "at offset ")
        if (line[i] ~ /' of '[^']*::reserved' changed/ || line[i] ~ /reserved\[[0-9]+\]' offset changed/) {
            reserved = -2
            for (n = i; n <= n_lines && reserved == -2; n++)
                if (line[n] ~ /offset changed from/) reserved = number_after(line[n], "offset changed from ")
        }
    }
    for (i = 1; i <= n_lines; i++) {
        if (line[i] ~ /^  type size changed from/) {
            from = number_after(line[i], "from ")
            to = number_after(line[i], " to ")
            breaks(name, name (to > from ? " grew from " : " shrank from ") bytes(from) " to " bytes(to) " bytes: programs have memory of the old size" (to > from && (what["old", name ".reserved"] != "") ? "; new fields take the place of words of reserved[]" : ""))
            continue
        }
        if (line[i] ~ /^    '.*at offset [0-9]+/) {
            field = last_word(quoted(line[i], 1))
            from = number_after(line[i], "at offset ")
            if (quoted(line[i], 1) ~ /\(/) field = field_at(name, quoted(line[i], 1))
            if (section_of(i) == "deletion") {
                if (field != "reserved" || size)
                    breaks(name "." field, name "." field " is gone, at byte " bytes(from) ": programs write or read it there")
            } else if (!size && (reserved < 0 || from < reserved))
                breaks(name "." field, name "." field " is new at byte " bytes(from) ", outside of reserved[]: programs need not have zeros there")
            continue
        }
        if (line[i] ~ /^    '.*' offset changed from/) {
            field = last_word(quoted(line[i], 1))
            if (field == "reserved") continue
            breaks(name "." field, name "." field " moved from byte " bytes(number_after(line[i], "from ")) " to " bytes(number_after(line[i], " to ")) ": programs have it at the old place")
            continue
        }
        if (line[i] ~ /^    type '.*' of '.*::.*' changed/) {
            field = quoted(line[i], 2)
            sub(/.*::/, "", field)
            if (field == "reserved") continue
            # A struct that lies within is told of on its own.
            if (line[i + 1] ~ /reported earlier/) continue
            split(what["old", name "." field], part, "\t")
            split(what["new", name "." field], now, "\t")
            breaks(name "." field, name "." field (part[3] == now[3] ? " is what " part[3] " means, which has changed" : " was " part[3] " and is " now[3]))
            continue
        }
    }
}

# The name of a field that is a pointer to a function: abidiff prints int (int)* name.
function field_at(struct, text) {
    sub(/.* /, "", text)
    return text
}

function number_after(text, words,    at) {
    at = index(text, words)
    return at ? substr(text, at + length(words)) + 0 : -1
}

# What abidiff has not mentioned: what is new, and what only the compiler sees.
function the_rest(    i, one, old, new, part, where_to) {
    for (i = 1; i <= n_names; i++) {
        one = names[i]
        old = what["old", one]
        new = what["new", one]
        if (old == new) continue
        split(old == "" ? new : old, part, "\t")
        if (one ~ /\.reserved$/ && old != "") continue
        if (part[1] == "macro") {
            split(new, where_to, "\t")
            if (old != "" && new != "" && part[3] == "") breaks_source(one, one " takes " where_to[2] " and took " part[2])
            else if (old != "" && new != "") breaks(one, one " was " part[3] " and is " where_to[3] ": programs have the old one built in")
            else if (old != "") breaks_source(one, one " is gone: programs that use it no longer compile")
            else added(one, one)
        } else if (old == "")
            added(one, one (part[1] == "field" ? ", a field" : ""))
        else if (one in told) continue
        else if (new == "") {
            if (part[1] == "field" && what["new", part[2]] == "") continue # its struct is gone
            breaks_source(one, one " is gone or has another name: programs that use it no longer compile")
        } else if (part[1] == "typedef" || part[1] == "value") {
            split(new, where_to, "\t")
            breaks_source(one, one " was " (part[1] == "value" ? part[3] : part[2]) " and is " (part[1] == "value" ? where_to[3] : where_to[2]))
        } else {
            split(new, where_to, "\t")
            if (part[1] == "function" && part[3] == where_to[3] && parameters_alike(part[4], where_to[4])) renamed = 1
            else breaks_source(one, one " is declared in another way, at equal sizes and places: programs may no longer compile")
        }
    }
    if (renamed) print record ":1: new: parameters have other names: record them"
}
function parameters_alike(a, b) {
    gsub(/[a-z_0-9]+(,|$)/, ",", a)
    gsub(/[a-z_0-9]+(,|$)/, ",", b)
    return a == b
}
function added(name, text,    owner) {
    owner = name
    if (!sub(/\.[^.]*$/, "", owner)) owner = enum_of[name]
    # With the struct or enum itself the rest is new as well, and need not be listed; what moved is told.
    if (owner != "" && what["old", owner] == "") return
    if (!(name in told)) tell(name, "new: " text ": record it")
}
function breaks_source(name, text) {
    tell(name, "breaks sources: " text)
}
