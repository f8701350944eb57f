# examples.awk - what main of an example shows; with strip.awk, over examples/*.[ch] and examples/tutorials/*.c.
# Prints FILE:LINE: WHAT.

function bad(what) { print FILENAME ":" FNR ": " what }

FNR == 1 {
    forget()
    common = FILENAME ~ /(^|\/)command_line\.h$/
    of_main = 0
}

{
    line = code($0)
    if (line ~ /(^|[^a-z_])(setvbuf|setlinebuf|setbuf|setbuffer)[ \t]*\(/)
        bad("tri_init has lines flushed under a launcher: no example sets buffers")
    if (line ~ /(^|[^a-z_])(setenv|putenv|unsetenv)[ \t]*\(/)
        bad("an example sets what it wants by a call (tri_num_threads_set, tri_cpu_devices_set), not the environment")
    if (!common && line ~ /(^|[^a-z_])(output_check|atexit)[a-z_]*[ \t]*\(/)
        bad("what was printed is checked in examples/command_line.h, for all that parse options with it")
    if ($0 ~ /^int main\(/) of_main = 10
    else if (of_main > 0) of_main--
    if (of_main > 0 && ($0 ~ /"-|usage: / || line ~ /strcmp|sizeof\(options|option options|argv\[|argc *[<>=!]|getopt/))
        bad("the first lines of main show what the example teaches; the command line is parsed in a function above it")
}
