/*
 * utf8.c - see utf8.h.
 */
/* build: train trirun */
#include "base/utf8.h"

#include <string.h>

size_t trii_utf8_character(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t n = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;

    if (at[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80) /* also the end of the text */
            return 0;
    }
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return n;
}

size_t trii_utf8_mark(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void trii_utf8_repair(char *text)
{
    while (*text != '\0') {
        size_t n = trii_utf8_character(text);

        if (n == 0)
            *text = '?';
        text += n > 0 ? n : 1;
    }
}
