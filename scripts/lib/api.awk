# api.awk - what the public headers declare, as C reads them: one line a declaration, columns
# separated by tabs, WHERE being FILE:LINE. Read by scripts/check_api and scripts/check_abi.
#
#   struct    WHERE NAME                          with a body; a union too
#   field     WHERE NAME STRUCT TYPE              TYPE as in a cast: "const char *", "int [2]",
#                                                 "void (*)(void *arg)"; NAME of TRI_RESERVED(n) is
#                                                 reserved; the STRUCT of a field of a nameless one is
#                                                 that around it
#   enum      WHERE NAME
#   value     WHERE NAME ENUM VALUE               VALUE as written, or counted on from such a one
#   function  WHERE NAME MARKS RETURN PARAMETERS  MARKS: TRI_API, TRI_MUST_CHECK, TRI_PRINTF(1,2),
#                                                 static, inline, in this order, separated by blanks
#   variable  WHERE NAME MARKS TYPE
#   typedef   WHERE NAME TYPE                     a struct's or enum's of the same name is left out
#   macro     WHERE NAME PARAMETERS BODY          PARAMETERS "-": without parentheses
#
# Left out: comments, bodies of functions, attributes, forward declarations, what #ifdef __cplusplus
# keeps for C++. Of other conditions all branches are read.

BEGIN { high = 100000 }

FNR == 1 {
    if (NR > 1) end_file()
    file = FILENAME
    n = 0
    depth = conditions = cxx = 0
    in_comment = 0
    pending = ""
}

{
    line = plain($0)
    if (pending != "" || line ~ /^[ \t]*#/) {
        if (pending == "") pending_line = FNR
        pending = pending line
        if (pending ~ /\\$/) {
            sub(/\\$/, " ", pending)
            next
        }
        directive(squeeze(pending))
        pending = ""
        next
    }
    if (cxx) next
    tokens(line)
}

END { end_file() }

function end_file() {
    if (n > 0) declaration(1, n)
    n = 0
}

# The line without comments; texts in quotes stay.
function plain(text, out, at, c) {
    out = ""
    while (text != "") {
        if (in_comment) {
            at = index(text, "*/")
            if (!at) return out
            text = substr(text, at + 2)
            in_comment = 0
            out = out " "
            continue
        }
        if (!match(text, /\/\*|\/\/|["']/)) return out text
        c = substr(text, RSTART, 1)
        out = out substr(text, 1, RSTART - 1)
        text = substr(text, RSTART)
        if (c == "/") {
            if (substr(text, 2, 1) == "/") return out
            in_comment = 1
            text = substr(text, 3)
        } else {
            if (c == "\"") match(text, /^"([^"\\]|\\.)*"?/)
            else match(text, /^'([^'\\]|\\.)*'?/)
            out = out substr(text, 1, RLENGTH)
            text = substr(text, RLENGTH + 1)
        }
    }
    return out
}

function squeeze(text) {
    gsub(/[ \t]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return text
}

# A line of the preprocessor, its continuations joined.
function directive(text, name, parameters) {
    sub(/^# ?/, "", text)
    if (text ~ /^if/) {
        conditions++
        if (!cxx && text ~ /^if(def| defined ?\(?) ?__cplusplus/) cxx = conditions
        if (!cxx && text ~ /^if(ndef| !defined ?\(?) ?__cplusplus/) cxx_else[conditions] = 1
        return
    }
    if (text ~ /^el/) {
        if (cxx == conditions) cxx = 0
        else if (conditions in cxx_else) cxx = conditions
        return
    }
    if (text ~ /^endif/) {
        if (cxx == conditions) cxx = 0
        delete cxx_else[conditions]
        conditions--
        return
    }
    if (cxx || text !~ /^define /) return
    sub(/^define /, "", text)
    match(text, /^[A-Za-z_][A-Za-z_0-9]*/)
    name = substr(text, 1, RLENGTH)
    text = substr(text, RLENGTH + 1)
    parameters = "-"
    if (match(text, /^\([^)]*\)/)) {
        parameters = substr(text, 1, RLENGTH)
        text = substr(text, RLENGTH + 1)
    }
    put("macro", pending_line, name, parameters "\t" squeeze(text))
}

function put(kind, at, name, rest) {
    printf "%s\t%s:%d\t%s%s\n", kind, file, at, name, rest == "" ? "" : "\t" rest
}

# Adds the tokens of a line; a declaration that ends is taken at once.
function tokens(text, one) {
    while (1) {
        sub(/^[ \t]+/, "", text)
        if (text == "") return
        if (!match(text, /^([A-Za-z_][A-Za-z_0-9]*|[0-9][A-Za-z_0-9.]*|\.\.\.|<<|>>|"([^"\\]|\\.)*"|'([^'\\]|\\.)*')/))
            RLENGTH = 1
        one = substr(text, 1, RLENGTH)
        text = substr(text, RLENGTH + 1)
        if (one == "TRI_BEGIN_DECLS" || one == "TRI_END_DECLS") continue
        if (n == 0 && one == ";") continue
        token[++n] = one
        where[n] = FNR
        if (one == "{") {
            if (depth++ == 0) body = token[n - 1] == ")"
        } else if (one == "}") {
            if (--depth == 0 && body) {
                n = opening()
                declaration(1, n - 1)
                n = 0
            }
        } else if (one == ";" && depth == 0) {
            declaration(1, n - 1)
            n = 0
        }
    }
}

# Where the body of the function begins that ends with the last token.
function opening(level, i) {
    level = 0
    for (i = n; i > 0; i--) {
        if (token[i] == "}") level++
        if (token[i] == "{" && --level == 0) return i
    }
    return 1
}

# The token that closes what token i opens.
function closing(i, to, level) {
    level = 0
    for (; i <= to; i++) {
        if (token[i] ~ /^[({[]$/) level++
        if (token[i] ~ /^[])}]$/ && --level == 0) return i
    }
    return to
}

# Tokens as clang-format would space them.
function text_of(from, to,    out, i, before, space) {
    out = ""
    for (i = from; i <= to; i++) {
        before = i > from ? token[i - 1] : ""
        space = before == "," || (token[i] !~ /^[](),;[]$/ && before !~ /^[[(~!*]$/) ||
                (token[i] == "(" && token[i + 1] == "*" && before !~ /^[(*]$/)
        out = out (space && out != "" ? " " : "") token[i]
    }
    return out
}

function declaration(from, to) {
    declare(from, to, "", 0)
}

# One declaration at file level, or in the struct `owner`.
function declare(from, to, owner, is_field,    i, j, marks, printf_mark, is_typedef, base, at) {
    # Marks and attributes first; what is left moves to the front of an own range.
    at = where[from]
    is_typedef = 0
    split("", seen)
    printf_mark = ""
    j = high + 1
    base = j
    for (i = from; i <= to; i++) {
        if (token[i] ~ /^(TRI_API|TRI_MUST_CHECK|static|inline|extern|_Noreturn)$/ && type_level(from, i) == 0) {
            seen[token[i]] = 1
            continue
        }
        if (token[i] == "typedef") {
            is_typedef = 1
            continue
        }
        if (token[i] == "__extension__") continue
        if (token[i] == "__attribute__" || token[i] == "TRI_PRINTF") {
            if (token[i] == "TRI_PRINTF") printf_mark = "TRI_PRINTF" compact(i + 1, closing(i + 1, to))
            i = closing(i + 1, to)
            continue
        }
        token[j] = token[i]
        where[j++] = where[i]
    }
    to = j - 1
    from = base
    high = to
    if (from <= to) {
        at = where[from]
        marks = mark("TRI_API") mark("TRI_MUST_CHECK")
        if (printf_mark != "") marks = marks " " printf_mark
        marks = marks mark("static") mark("inline") mark("extern")
        sub(/^ /, "", marks)
        if (marks == "") marks = "-"
        if (is_field && token[from] ~ /^TRI_[A-Z_]+$/ && token[from + 1] == "(")
            put("field", at, "reserved", owner "\t" compact(from, to))
        else
            declarators(from, to, owner, is_field, is_typedef, marks)
    }
    high = base - 1
}

function mark(word) {
    return word in seen ? " " word : ""
}

# The same without blanks but after commas and between words.
function compact(from, to,    out, i) {
    out = ""
    for (i = from; i <= to; i++)
        out = out (token[i] ~ /^[A-Za-z_0-9]/ && out ~ /[A-Za-z_0-9]$/ ? " " : "") token[i] (token[i] == "," ? " " : "")
    return out
}

# How deep in brackets token i is.
function type_level(from, i,    level, k) {
    level = 0
    for (k = from; k < i; k++) {
        if (token[k] ~ /^[({[]$/) level++
        if (token[k] ~ /^[])}]$/) level--
    }
    return level
}

function declarators(from, to, owner, is_field, is_typedef, marks,    i, j, kind, tag, brace, end, spec, start, stop) {
    # The type before the declarators: words, or a struct, union or enum with its body.
    spec = ""
    tag = ""
    kind = ""
    for (i = from; i <= to; i++) {
        if (token[i] == "struct" || token[i] == "union" || token[i] == "enum") {
            kind = token[i]
            if (token[i + 1] ~ /^[A-Za-z_]/ && i + 1 <= to) tag = token[i + 1]
            brace = i + (tag != "" ? 2 : 1)
            if (brace <= to && token[brace] == "{") {
                end = closing(brace, to)
                if (tag == "" && is_typedef && end < to) tag = token[to]
                spec = spec (spec == "" ? "" : " ") kind " " tag
                if (tag == "" && is_field && end == to) tag = owner
                else if (tag == "" && is_field) tag = owner "." token[to]
                if (tag == owner "." token[to]) spec = spec tag
                body_of(kind, tag, brace + 1, end - 1, where[from], end == to && is_field)
                i = end + 1
            } else {
                spec = spec (spec == "" ? "" : " ") kind (tag != "" ? " " tag : "")
                i += tag != "" ? 2 : 1
            }
            break
        }
        if (token[i] !~ /^[A-Za-z_]/) break
        # The last word before a bracket, comma or end is the name.
        if (i == to || index("[,:=", token[i + 1]) || (token[i + 1] == "(" && spec != "")) break
        spec = spec (spec == "" ? "" : " ") token[i]
    }
    while (i <= to && token[i] ~ /^(const|volatile)$/) spec = spec " " token[i++]
    if (i > to) return # a forward declaration, or a struct alone
    for (start = i; start <= to; start = stop + 1) {
        for (stop = start; stop <= to && token[stop] != ","; stop++)
            if (token[stop] ~ /^[({[]$/) stop = closing(stop, to)
        declarator(spec, start, stop - 1, owner, is_field, is_typedef, marks)
    }
}

# One declarator: `*name`, `name[2]`, `(*name)(...)`, `*name(...)`.
function declarator(spec, from, to, owner, is_field, is_typedef, marks,    i, at, stars, inner, type, end) {
    stars = ""
    for (i = from; i <= to && token[i] ~ /^(\*|const|volatile|restrict|__restrict)$/; i++)
        stars = stars (token[i] == "*" ? "*" : token[i] " ")
    if (i > to) return
    if (token[i] == "(") { # a pointer to a function or an array; its name is the first word within
        end = closing(i, to)
        for (at = i + 1; at < end && token[at] !~ /^[a-z_]/; at++) ;
        inner = token[at]
        token[at] = ""
        type = spec " " stars text_of(i, end) text_of(end + 1, to)
        token[at] = inner
        put_one(inner, where[at], type, owner, is_field, is_typedef, marks)
        return
    }
    at = i
    if (i < to && token[i + 1] == "(" && !is_field && !is_typedef) {
        end = closing(i + 1, to)
        put("function", where[at], token[at], marks "\t" spec (stars == "" ? "" : " " stars) "\t" text_of(i + 2, end - 1))
        return
    }
    for (end = i + 1; end <= to && token[end] != "="; end++) ;
    type = spec (stars == "" ? "" : " " stars)
    if (end > i + 1) type = type " " compact(i + 1, end - 1)
    put_one(token[at], where[at], type, owner, is_field, is_typedef, marks)
}

function put_one(name, at, type, owner, is_field, is_typedef, marks) {
    sub(/ $/, "", type)
    if (is_field) put("field", at, name, owner "\t" type)
    else if (!is_typedef) put("variable", at, name, marks "\t" type)
    else if (type !~ "^(struct|enum|union) " name "$") put("typedef", at, name, type)
}

function body_of(kind, tag, from, to, at, nameless,    i, start, value, base, plus) {
    if (kind == "enum") {
        put("enum", at, tag)
        base = ""
        plus = 0
        for (start = from; start <= to; start = i + 1) {
            for (i = start; i <= to && token[i] != ","; i++)
                if (token[i] ~ /^[({[]$/) i = closing(i, to)
            if (token[start + 1] == "=" && i > start + 1) {
                base = compact(start + 2, i - 1)
                plus = 0
            }
            if (base == "") value = plus
            else if (base ~ /^-?[0-9]+$/) value = base + plus
            else value = base (plus ? "+" plus : "")
            put("value", where[start], token[start], tag "\t" value)
            plus++
        }
        return
    }
    if (!nameless) put("struct", at, tag)
    for (start = from; start <= to; start = i + 1) {
        for (i = start; i <= to && token[i] != ";"; i++)
            if (token[i] ~ /^[({[]$/) i = closing(i, to)
        if (i > start) declare(start, i - 1, tag, 1)
    }
}
