/*
 * interpreter.h - what the kernel needs besides a program's own file to run it.
 */
#ifndef TRII_INTERPRETER_H
#define TRII_INTERPRETER_H

#include <trireme/status.h>

/* Whether the program is there, and the interpreter of its first line, or the loader that a binary
 * names, is not: exec then says that the program is not there. name_out: that one, with a carriage
 * return shown as \r. */
bool trii_interpreter_missing(const char *path, char *name_out, size_t bytes);

#endif
