# abi_stub.awk - from a record (abi.awk) the C source of a library that defines each of its functions, and
# a variable of each struct and enum, so that abidiff sees those too that no function takes.

/^[a-z].*\);$/ && !/^typedef / {
    sub(/;$/, " { __builtin_trap(); }")
}
{ print }
/^} [a-z_0-9]+;$/ {
    gsub(/[} ;]/, "")
    print $0 " *abi_holds_" $0 ";"
}
/^(struct|union|enum) [a-z_0-9]+ \{$/ { tag = $1 " *abi_holds_" $2 }
/^};$/ && tag != "" {
    split(tag, part, /_holds_/)
    sub(/ /, " " part[2] " ", tag)
    print tag ";"
    tag = ""
}
