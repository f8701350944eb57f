/*
 * err.c - see err.h.
 */
/* build: leaf */
#include "base/err.h"

#include <stdarg.h>
#include <string.h>

static _Thread_local char err_line[TRII_ERR_BYTES];
static _Thread_local unsigned n_lines;

/* An error is one line, also where a name in it has control characters. */
static void to_one_line(char *line)
{
    for (char *c = line; *c != '\0'; c++)
        *c = (unsigned char)*c < ' ' ? '?' : *c;
}

void trii_err_set(const char *format, ...)
{
    /* Formatted aside: an argument may be the line itself. */
    char line[TRII_ERR_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    to_one_line(line);
    memcpy(err_line, line, sizeof(line));
    n_lines++;
}

unsigned trii_err_lines(void)
{
    return n_lines;
}

void trii_err_prepend(const char *format, ...)
{
    char line[TRII_ERR_BYTES];
    va_list args;
    size_t used, room = sizeof(line) - 1 - strlen(err_line);

    /* The cause is what must not be lost: what does not fit in front of it is cut. */
    if (room < sizeof("...: "))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    to_one_line(line);
    used = strlen(line);
    if (used + 2 > room) {
        used = room - 2;
        memcpy(line + used - 3, "...", 3);
    }
    snprintf(line + used, sizeof(line) - used, ": %s", err_line);
    memcpy(err_line, line, sizeof(line));
}

tri_status trii_need(const void *pointer, const char *call, const char *name)
{
    return pointer != NULL ? TRI_OK : TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s is NULL", call, name);
}

tri_status trii_need_text(const char *text, const char *call, const char *name)
{
    if (text != NULL && *text == '\0')
        return TRII_FAIL(TRI_ERR_INVALID_ARG, "%s: %s is empty", call, name);
    return trii_need(text, call, name);
}

static TRII_PRINTF(4, 0) tri_status
    fail(const char *file, int number, tri_status status, const char *format, va_list args)
{
    char line[TRII_ERR_BYTES] = "", place[80] = "";
    const char *slash = file != NULL ? strrchr(file, '/') : NULL;

    if (format != NULL)
        vsnprintf(line, sizeof(line), format, args);
    if (line[0] == '\0')
        snprintf(line, sizeof(line), "tri_status_fail: no reason is given");
    if (file != NULL)
        snprintf(place, sizeof(place), " (%.60s:%d)", slash != NULL ? slash + 1 : file, number);
    trii_err_set("%.*s%s", (int)(sizeof(line) - 1 - strlen(place)), line, place);
    return status < 0 ? status : TRI_ERR_INVALID_ARG;
}

tri_status(tri_status_fail)(tri_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    status = fail(NULL, 0, status, format, args);
    va_end(args);
    return status;
}

tri_status tri_status_fail_at(const char *file, int line, tri_status status, const char *format,
                              ...)
{
    va_list args;

    va_start(args, format);
    status = fail(file, line, status, format, args);
    va_end(args);
    return status;
}

const char *tri_last_error(void)
{
    return err_line;
}

const char *tri_status_name(tri_status status)
{
    switch (status) {
    case TRI_OK:
        return "OK";
    case TRI_INPROGRESS:
        return "INPROGRESS";
    case TRI_END:
        return "END";
    case TRI_ERR_INVALID_ARG:
        return "INVALID_ARG";
    case TRI_ERR_NO_MEMORY:
        return "NO_MEMORY";
    case TRI_ERR_UNSUPPORTED:
        return "UNSUPPORTED";
    case TRI_ERR_TIMEOUT:
        return "TIMEOUT";
    case TRI_ERR_IO:
        return "IO";
    case TRI_ERR_NOT_FOUND:
        return "NOT_FOUND";
    case TRI_ERR_FORMAT:
        return "FORMAT";
    case TRI_ERR_STATE:
        return "STATE";
    case TRI_ERR_NAN:
        return "NAN";
    case TRI_ERR_PEER_LOST:
        return "PEER_LOST";
    case TRI_ERR_ABORTED:
        return "ABORTED";
    case TRI_ERR_MISMATCH:
        return "MISMATCH";
    case TRI_ERR_GROUP_TIMEOUT:
        return "GROUP_TIMEOUT";
    case TRI_ERR_INTERNAL:
        return "INTERNAL";
    }
    return "unknown status";
}
