/*
 * escape.c - see escape.h. Called wherever a text of a user goes into JSON, a Prometheus label or
 * the terminal: report/, and labels of lines (worker/worker_output.c).
 */
#include "launch/output/escape.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Writes what stands for the character of n bytes at `at`, n = 0: for one byte that is none, to
 * `to`, which has room for 8; returns how much that is. */
typedef size_t (*spell)(const unsigned char *at, size_t n, char *to);

static char *spell_all(const char *text, spell one, bool quotes, char *out, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0, n, room = bytes - 1 - (size_t)quotes;

    if (quotes)
        out[used++] = '"';
    for (; *at != '\0'; at += n > 0 ? n : 1) {
        char piece[8];
        size_t length;

        n = trii_utf8_character((const char *)at);
        length = one(at, n, piece);
        if (used + length > room)
            break;
        memcpy(out + used, piece, length);
        used += length;
    }
    if (quotes)
        out[used++] = '"';
    out[used] = '\0';
    return out;
}

static size_t copy(const unsigned char *at, size_t n, char *to)
{
    if (n == 0) {
        memcpy(to, "\xef\xbf\xbd", 3); /* U+FFFD */
        return 3;
    }
    memcpy(to, at, n);
    return n;
}

static size_t spell_json(const unsigned char *at, size_t n, char *to)
{
    if (*at == '"' || *at == '\\')
        return (size_t)snprintf(to, 8, "\\%c", *at);
    if (*at < 0x20)
        return (size_t)snprintf(to, 8, "\\u%04x", *at);
    return copy(at, n, to);
}

static size_t spell_label(const unsigned char *at, size_t n, char *to)
{
    if (*at == '"' || *at == '\\')
        return (size_t)snprintf(to, 8, "\\%c", *at);
    if (*at == '\n')
        return (size_t)snprintf(to, 8, "\\n");
    return copy(at, n, to);
}

static size_t spell_plain(const unsigned char *at, size_t n, char *to)
{
    if (*at == '\n' || *at == '\t')
        return (size_t)snprintf(to, 8, "\\%c", *at == '\n' ? 'n' : 't');
    /* U+0080 to U+009F control some terminals, too */
    if (n == 0 || *at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0)) {
        size_t used = 0;

        for (size_t i = 0; i < (n > 0 ? n : 1) && used + 4 <= 8; i++) {
            static const char digits[] = "0123456789abcdef";

            to[used++] = '\\';
            to[used++] = 'x';
            to[used++] = digits[at[i] >> 4];
            to[used++] = digits[at[i] & 15];
        }
        return used;
    }
    return copy(at, n, to);
}

char *trii_json_quote(const char *text, char *out, size_t bytes)
{
    return spell_all(text, spell_json, true, out, bytes);
}

char *trii_metrics_quote(const char *text, char *out, size_t bytes)
{
    return spell_all(text, spell_label, true, out, bytes);
}

char *trii_text_plain(const char *text, char *out, size_t bytes)
{
    return spell_all(text, spell_plain, false, out, bytes);
}
