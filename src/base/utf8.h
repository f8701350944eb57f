/*
 * utf8.h - whether bytes are characters: texts of users go into JSON, terminals and pictures.
 */
#ifndef TRII_UTF8_H
#define TRII_UTF8_H

#include <stddef.h>

/* Bytes of the UTF-8 character at the start of a text that ends with '\0'; 0: it is none (a part of
 * one, an overlong form, half of a pair). */
size_t trii_utf8_character(const char *text);
/* Bytes of the mark that programs for Windows begin files of UTF-8 with, or 0. */
size_t trii_utf8_mark(const char *text, size_t bytes);
/* A question mark for each byte that is no character. */
void trii_utf8_repair(char *text);

#endif
