/*
 * error_file.c - see error_file.h. The only user of Jansson in this room.
 *
 *   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
 *
 * or {"message": TEXT, "timestamp": SECONDS}, which older workers write.
 */
#include "launch/report/error_file.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "os/file.h"

/* \uDXXX, the first half of a surrogate pair if X is one of 89AB, the second if it is one of
 * CDEF. */
static bool is_half(const char *at, const char *end, const char *which)
{
    return end - at >= 6 && memcmp(at, "\\u", 2) == 0 && (at[2] | 32) == 'd' && at[3] != '\0' &&
           strchr(which, at[3]) != NULL;
}

/* Python writes single halves for names of files that are not UTF-8, and others write bytes that
 * are not UTF-8: both become question marks. */
static void repair_texts(char *text, const char *end)
{
    static const char first[] = "89abAB", second[] = "cdefCDEF";

    for (char *at = text; at < end; at++) {
        size_t n = trii_utf8_character(at);

        if (n == 0)
            *at = '?';
        else if (n > 1)
            at += n - 1;
        else if (is_half(at, end, first) && is_half(at + 6, end, second))
            at += 11;
        else if (is_half(at, end, first) || is_half(at, end, second))
            memcpy(at, "\\u003f", 6);
        else if (*at == '\\')
            at++; /* what follows begins no escape */
    }
}

/* A value of Python's that JSON does not have, or an integer that may need more than 64 bits. */
static bool is_foreign(const char *value, size_t length)
{
    const char *digits = value + (length > 0 && *value == '-');
    size_t n = length - (size_t)(digits - value);

    return (length == 3 && memcmp(value, "NaN", 3) == 0) ||
           (n == 8 && memcmp(digits, "Infinity", 8) == 0) ||
           (n > 18 && strspn(digits, "0123456789") >= n);
}

/* Copies the file's text, with quotation marks around such values; returns the end of the copy. */
static char *quote_values(const char *text, char *out)
{
    bool inside = false; /* of quotation marks */

    while (*text != '\0') {
        size_t length = inside ? 0 : strcspn(text, " \t\r\n,:[]{}\"");
        bool foreign = is_foreign(text, length);

        if (length == 0)
            length = inside && *text == '\\' && text[1] != '\0' ? 2 : 1;
        inside = inside != (*text == '"');
        if (foreign)
            *out++ = '"';
        memcpy(out, text, length);
        out += length;
        if (foreign)
            *out++ = '"';
        text += length;
    }
    return out;
}

/* Reads what Jansson refuses, and Python does not. */
static json_t *load_repaired(const char *text, size_t bytes)
{
    char *copy = trii_alloc(bytes + 1, 1, "error file");
    char *quoted = trii_alloc(2 * bytes + 1, 1, "error file");
    json_t *object = NULL;

    if (copy != NULL && quoted != NULL) {
        memcpy(copy, text, bytes);
        repair_texts(copy, copy + bytes);
        object =
            json_loadb(quoted, (size_t)(quote_values(copy, quoted) - quoted), JSON_ALLOW_NUL, NULL);
    }
    trii_free(quoted);
    trii_free(copy);
    return object;
}

/* The agent does nothing else while it reads, and a worker may write what it likes. */
static tri_status open_file(const char *path, trii_mapping *file_out)
{
    tri_status status = trii_mapping_open(path, file_out);
    size_t bytes = status == TRI_OK ? file_out->bytes : 0;

    if (bytes <= TRII_ERROR_FILE_BYTES)
        return status;
    trii_mapping_close(file_out);
    return TRII_FAIL(TRI_ERR_FORMAT, "%s has %zu bytes; at most %d are read", path, bytes,
                     TRII_ERROR_FILE_BYTES);
}

/* NULL: it is no JSON. */
static json_t *load(const trii_mapping *file)
{
    json_t *object = json_loadb(file->data, file->bytes, JSON_ALLOW_NUL, NULL);

    return object != NULL ? object : load_repaired(file->data, file->bytes);
}

static bool is_inside_character(const char *at)
{
    return ((unsigned char)*at & 0xc0) == 0x80;
}

/* The text of a JSON string; of a longer one its end where `tail`, else its beginning. */
static void copy_string(const json_t *value, bool tail, char *out, size_t bytes)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value), room = bytes - 1, from = 0;

    if (length > room && tail) {
        for (from = length - room; from < length && is_inside_character(text + from);)
            from++;
    } else if (length > room) {
        for (length = room; length > 0 && is_inside_character(text + length);)
            length--;
    }
    if (length > from)
        memcpy(out, text + from, length - from);
    out[length - from] = '\0';
    for (size_t i = 0; i < length - from; i++)
        out[i] = out[i] == '\0' ? '?' : out[i];
}

/* A number, also one in a string. */
static int64_t number_of(const json_t *value)
{
    if (json_is_string(value))
        return strtoll(json_string_value(value), NULL, 10);
    if (json_is_real(value) && json_real_value(value) >= 0 && json_real_value(value) < 1e18)
        return (int64_t)json_real_value(value);
    return (int64_t)json_integer_value(value);
}

bool trii_error_file_read(const char *path, trii_error_file *error_out)
{
    const json_t *message, *info;
    trii_mapping mapping;
    tri_status status = open_file(path, &mapping);
    json_t *file;

    *error_out = (trii_error_file){.too_large = status == TRI_ERR_FORMAT};
    if (status != TRI_OK)
        return false;
    info = file = load(&mapping);
    message = json_object_get(file, "message");
    if (json_is_object(message)) {
        info = json_object_get(message, "extraInfo");
        copy_string(json_object_get(info, "py_callstack"), true, error_out->traceback,
                    sizeof(error_out->traceback));
        message = json_object_get(message, "message");
    }
    copy_string(message, false, error_out->message, sizeof(error_out->message));
    error_out->timestamp = number_of(json_object_get(info, "timestamp"));
    json_decref(file);
    trii_mapping_close(&mapping);
    return error_out->message[0] != '\0';
}

/* The text of the file with "errorCode" in its message; release with trii_free. NULL: it is not of
 * that form, or too little memory. */
static char *add_error_code(const trii_mapping *mapping, int exit_code, size_t *bytes_out)
{
    json_t *file = load(mapping), *message = json_object_get(file, "message");
    char *text = NULL;

    if (json_is_object(message) &&
        json_object_set_new(message, "errorCode", json_integer(exit_code)) == 0) {
        *bytes_out = json_dumpb(file, NULL, 0, JSON_ENSURE_ASCII);
        text = trii_alloc(*bytes_out, 1, "error file");
    }
    if (text != NULL)
        *bytes_out = json_dumpb(file, text, *bytes_out, JSON_ENSURE_ASCII);
    json_decref(file);
    return text;
}

tri_status trii_error_file_copy(const char *from, const char *to, int exit_code)
{
    trii_mapping file;
    size_t bytes;
    char *text;
    tri_status status = open_file(from, &file);

    if (status != TRI_OK)
        return status;
    text = add_error_code(&file, exit_code, &bytes);
    status = text != NULL ? trii_file_replace(to, text, bytes)
                          : trii_file_replace(to, file.data, file.bytes);
    trii_free(text);
    trii_mapping_close(&file);
    return status;
}
