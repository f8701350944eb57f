# make_calls.awk - from the public headers a C file that calls every public function with arguments
# that misuse_test.c chooses (misuse.h). Run by CMake; a function is in the suite because it is in a
# header, and for no other reason.

function trim(text)
{
    gsub(/^[ \t]+|[ \t]+$/, "", text)
    return text
}

# "const int64_t *shape" -> type and name; "int fds[2]" is a pointer.
function split_parameter(text)
{
    text = trim(text)
    if (text ~ /\(\*/) { # a callback
        type = "callback"
        name = text
        sub(/.*\(\*/, "", name)
        sub(/\).*/, "", name)
        return
    }
    if (match(text, /\[[^]]*\]$/)) {
        text = substr(text, 1, RSTART - 1)
        sub(/[A-Za-z_0-9]+$/, "*&", text)
    }
    match(text, /[A-Za-z_0-9]+$/)
    name = substr(text, RSTART)
    type = trim(substr(text, 1, RSTART - 1))
    if (type ~ /_(hook|fn)$/) # a callback with a name
        type = "callback"
}

function emit(text,    head, list, n, i, depth, piece, parts, call, result, c)
{
    sub(/^TRI_API /, "", text)
    gsub(/TRI_MUST_CHECK |TRI_PRINTF\([^)]*\)/, "", text)
    i = index(text, "(")
    head = trim(substr(text, 1, i - 1))
    list = substr(text, i + 1)
    sub(/\)[^)]*$/, "", list)
    match(head, /[a-z_0-9]+$/)
    function_name = substr(head, RSTART)
    if (function_name in seen) # a header may repeat one of another
        return
    seen[function_name] = 1
    result = trim(substr(head, 1, RSTART - 1))
    n = 0
    depth = 0
    piece = ""
    last = ""
    list = list ","
    for (i = 1; i <= length(list); i++) {
        c = substr(list, i, 1)
        if (c == "(")
            depth++
        if (c == ")")
            depth--
        if (c == "," && depth == 0) {
            piece = trim(piece)
            if (piece == "...")
                last = ", (void *)NULL" # a format without conversions, or a list's end
            else if (piece != "" && piece != "void")
                parts[n++] = piece
            piece = ""
        } else
            piece = piece c
    }
    call = ""
    types = ""
    for (i = 0; i < n; i++) {
        split_parameter(parts[i])
        if (type == "callback")
            argument = "NULL"
        else if (type ~ /\*(const )?$/ || type ~ /\*$/)
            argument = "(" type ")misuse_pointer(p, " i ")"
        else if (type == "tri_opt")
            argument = "TRI_SET(misuse_real(p, " i "))"
        else if (type == "double" || type == "float")
            argument = "(" type ")misuse_real(p, " i ")"
        else
            argument = "(" type ")misuse_integer(p, " i ")"
        call = call (i > 0 ? ", " : "") argument
        types = types (i > 0 ? ", " : "") "{\"" type "\", \"" name "\"}"
    }
    call = "(" function_name ")(" call last ")"
    if (result == "tri_status")
        call = "misuse_status(p, " call ")"
    else if (result == "tri_tensor *")
        call = "misuse_tensor(p, " call ")"
    else if (result == "tri_module *")
        call = "misuse_module(p, " call ")"
    else if (result == "tri_optimizer *")
        call = "misuse_optimizer(p, " call ")"
    else
        call = "(void)" call
    printf "static void call_%s(misuse_pick *p)\n{\n    (void)p;\n    %s;\n}\n", function_name, call
    rows = rows sprintf("    {\"%s\", call_%s, %d, {%s}},\n", function_name, function_name, n,
        n > 0 ? types : "{NULL, NULL}")
}

BEGIN {
    print "/* Made by make_calls.awk. */"
    print "#include \"misuse/misuse.h\""
}
{ gsub(/\/\*([^*]|\*[^\/])*\*\//, "") }
in_comment {
    if (!/\*\//)
        next
    sub(/.*\*\//, "")
    in_comment = 0
}
/\/\*/ {
    sub(/\/\*.*/, "")
    in_comment = 1
}
/^#/ { next }
/^(typedef )?struct tri_[a-z0-9_]+ \{/ {
    struct_name = $0
    sub(/^(typedef )?struct /, "", struct_name)
    sub(/ .*/, "", struct_name)
}
/^ +TRI_RESERVED\(/ {
    reserved = reserved sprintf("    {\"const %s *\", sizeof(%s), offsetof(%s, reserved), sizeof(((%s *)0)->reserved)},\n",
        struct_name, struct_name, struct_name, struct_name)
}
/^TRI_API/ {
    collecting = 1
    text = ""
}
collecting {
    text = text " " $0
    if (/;/) {
        gsub(/[ \t]+/, " ", text)
        sub(/;.*/, "", text)
        emit(trim(text))
        collecting = 0
    }
}
END {
    printf "const misuse_row misuse_rows[] = {\n%s};\n", rows
    printf "const misuse_growing misuse_growing_structs[] = {\n%s};\n", reserved
    print "const int misuse_n_growing = (int)(sizeof(misuse_growing_structs) / sizeof(misuse_growing_structs[0]));"
    print "const int misuse_n_rows = (int)(sizeof(misuse_rows) / sizeof(misuse_rows[0]));"
}
