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

function end_block(    i, n, k, indent) {
    if (block == "") return
    # What is told of another struct or enum within this one is taken out, the innermost first.
    n_inner = 0
    for (i = n_lines; i > 0; i--)
        if (line[i] ~ / type '(struct|union|enum) [^']*'.* changed:$/) {
            match(line[i], /^ */)
            indent = RLENGTH
            n_inner++
            inner[n_inner] = quoted(line[i], 1)
            n = 0
            for (k = i + 1; k <= n_lines && match(line[k], /^ */) && RLENGTH > indent; k++)
                inner_line[n_inner, ++n] = substr(line[k], indent + 1)
            inner_lines[n_inner] = n
            line[i] = substr(line[i], 1, indent) "reported earlier"
            for (n = i + 1; k <= n_lines; k++) line[n++] = line[k]
            n_lines = n - 1
        }
    end_one()
    for (k = 1; k <= n_inner; k++) {
        block = name = inner[k]
        sub(/ .*/, "", block)
        sub(/.* /, "", name)
        n_lines = inner_lines[k]
        for (i = 1; i <= n_lines; i++) line[i] = inner_line[k, i]
        end_one()
    }
    block = ""
    n_lines = 0
}

function end_one() {
    if (n_lines == 1 && line[1] ~ /reported earlier/) return
    if (block == "call") end_call()
    else if (block == "enum") end_enum()
    else end_struct()
}

function end_call(    i, text, earlier) {
    text = ""
    earlier = 0
    for (i = 1; i <= n_lines; i++) {
        if (line[i] ~ /reported earlier/) earlier = 1
        if (line[i] ~ /type size|reported earlier/) continue
        if (line[i] ~ /underlying type '/) break # a typedef, of which the_rest() tells
        sub(/^ */, "", line[i])
        sub(/ at [^ ]+:[0-9]+:[0-9]+/, "", line[i])
        gsub(/typedef |entity changed |compatible type /, "", line[i])
        text = text (text == "" ? "" : " ") line[i]
    }
    sub(/:$/, "", text)
    # A struct that is passed by value is told of on its own.
    if (earlier && text ~ /^(return type changed|parameter [0-9]+ of type '[^']*' changed)$/) return
    breaks(name, name ": " text ": programs call it as it was")
}

# What abidiff says in words that this does not know is told in those.
function in_its_words(    i, text) {
    text = ""
    for (i = 1; i <= n_lines; i++) text = text line[i]
    gsub(/ +/, " ", text)
    breaks(name, name ":" text)
}

function end_enum(    i, value, number, before) {
    before = n_breaks
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
        if (line[i] ~ /type size changed/) breaks(name, name ":" line[i])
    if (n_breaks == before) in_its_words()
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

function end_struct(    i, size, reserved, field, part, now, from, to, n, before, known) {
    before = n_breaks
    known = 0
    # Where the reserved room began, if the report mentions it.
    reserved = -1
    size = 0
    for (i = 1; i <= n_lines; i++) {
        if (line[i] ~ /^  type size changed from/) size = 1
        # A break of sources, or the room is used up; what is told elsewhere.
        if (line[i] ~ /name of '[^']*' changed to|reported earlier/) known = 1
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
            split(what["old", name "." field], part, "\t")
            split(what["new", name "." field], now, "\t")
            if ((line[i] ~ /reported earlier/ || line[i + 1] ~ /^      .*reported earlier/) && !is_alias(part[3]))
                continue # a struct or enum that is told of on its own
            breaks(name "." field, name "." field (part[3] == now[3] ? " is what " part[3] " means, which has changed" : " was " part[3] " and is " now[3]))
            continue
        }
    }
    if (n_breaks == before && !known && reserved < 0) in_its_words()
}

# The name of a field that is a pointer to a function: abidiff prints int (int)* name.
function field_at(struct, text) {
    sub(/.* /, "", text)
    return text
}

# Whether a type is another name of a type, not a struct or enum.
function is_alias(type,    of) {
    sub(/^(struct|union|enum) /, "", type)
    sub(/[^a-z0-9_].*/, "", type)
    split(what["old", type], of, "\t")
    return of[1] == "typedef"
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
            if (old != "" && new != "" && part[2] != where_to[2]) breaks_source(one, one " takes " where_to[2] " and took " part[2])
            else if (part[3] != "" && where_to[3] != "") breaks(one, one " was " part[3] " and is " where_to[3] ": programs have the old one built in")
            else if (old != "" && new != "") breaks_source(one, one " is another sort of macro: programs may no longer compile")
            else if (old != "") breaks_source(one, one " is gone: programs that use it no longer compile")
            else added(one, one)
        } else if (old == "")
            added(one, one (part[1] == "field" ? ", a field" : ""))
        else if (one in told) continue
        else if (new == "") {
            if (part[1] == "field" && what["new", part[2]] == "") continue # its struct is gone
            breaks_source(one, one " is gone or has another name: programs that use it no longer compile")
        } else {
            split(new, where_to, "\t")
            # abidiff has found the types to be the same.
            if (part[1] ~ /^(function|field|typedef)$/ && sorted(old) == sorted(new))
                breaks(one, one " takes its parameters in another order, and their types do not tell: programs pass them in the old one")
            else if (part[1] ~ /^(function|field|typedef)$/ && names_apart(old) == names_apart(new)) renamed = 1
            else if (part[1] == "typedef") breaks_source(one, one " was " part[2] " and is " where_to[2])
            else if (part[1] == "value") breaks_source(one, one " was " part[3] " and is " where_to[3])
            else breaks_source(one, one " is declared in another way, at equal sizes and places: programs may no longer compile")
        }
    }
    if (renamed) print record ":1: new: parameters have other names: record them"
}
# Without the names of parameters.
function names_apart(declaration) {
    gsub(/[ *][a-z_0-9]+[,)]/, ",", declaration)
    sub(/[ *][a-z_0-9]+$/, "", declaration)
    return declaration
}
# The words of a declaration, each with how often it is there.
function sorted(declaration,    word, n, i, k, text) {
    n = split(declaration, word, /[^A-Za-z_0-9*]+/)
    text = ""
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && word[k] < word[k - 1]; k--) {
            word[0] = word[k]
            word[k] = word[k - 1]
            word[k - 1] = word[0]
        }
    for (i = 1; i <= n; i++) text = text " " word[i]
    return text
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
