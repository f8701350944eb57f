/*
 * error_file.c - see error_file.h.
 *
 *   {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}
 *
 * or {"message": TEXT, "timestamp": SECONDS}, which older workers write.
 */
#include "launch/report/error_file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "os/file.h"

/* Deeper is no file of torchelastic's. */
enum { MAX_DEPTH = 16 };

typedef struct span {
    const char *at, *end; /* at == NULL: nothing */
} span;

static const char *skip_blank(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    return at;
}

/* Behind the value at `at`, or NULL if it is none. */
static const char *skip_value(const char *at, const char *end)
{
    int depth = 0;

    do {
        at = skip_blank(at, end);
        if (at == end)
            return NULL;
        if (*at == '"') {
            for (at++; at < end && *at != '"'; at++)
                at += *at == '\\';
            if (at >= end)
                return NULL;
            at++;
        } else if (*at == '{' || *at == '[') {
            at++;
            if (++depth > MAX_DEPTH)
                return NULL;
        } else if (*at == '}' || *at == ']') {
            at++;
            depth--;
        } else if (*at == ',' || *at == ':') {
            if (depth == 0)
                return NULL;
            at++;
        } else if (*at == '\0') {
            return NULL; /* strchr would find it */
        } else {
            while (at < end && *at != '\0' && strchr(",:{}[]\" \t\r\n", *at) == NULL)
                at++;
        }
    } while (depth > 0);
    return depth == 0 ? at : NULL;
}

/* The value of a key of the object. */
static span find_key(span object, const char *key)
{
    const char *at = object.at, *end = object.end, *value;
    size_t length = strlen(key);

    if (at == NULL || (at = skip_blank(at, end)) == end || *at != '{')
        return (span){0};
    for (at = skip_blank(at + 1, end); at < end && *at == '"'; at = skip_blank(at + 1, end)) {
        bool same = (size_t)(end - at) > length + 1 && memcmp(at + 1, key, length) == 0 &&
                    at[length + 1] == '"';

        at = skip_value(at, end);
        at = at != NULL ? skip_blank(at, end) : end;
        if (at == end || *at != ':')
            break;
        value = skip_blank(at + 1, end);
        at = skip_value(value, end);
        if (at == NULL)
            break;
        if (same)
            return (span){value, at};
        at = skip_blank(at, end);
        if (at == end || *at != ',')
            break;
    }
    return (span){0};
}

static bool is_string(span value)
{
    return value.at != NULL && value.at < value.end && *value.at == '"';
}

/* Writes the code point as UTF-8; what cannot stand in a text of C, and halves of pairs, become a
 * question mark. */
static size_t put_character(unsigned code, char *out)
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    if (code == 0 || (code >= 0xd800 && code < 0xe000)) {
        out[0] = '?';
        return 1;
    }
    if (n == 1) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)((0xf00u >> n & 0xff) | code >> 6 * (n - 1));
    for (size_t i = 1; i < n; i++)
        out[i] = (char)(0x80 | (code >> 6 * (n - 1 - i) & 0x3f));
    return n;
}

/* The XXXX of \uXXXX. */
static bool read_code(const char *at, const char *end, unsigned *code_out)
{
    *code_out = 0;
    for (int i = 0; i < 4; i++, at++) {
        if (at >= end || !isxdigit((unsigned char)*at))
            return false;
        *code_out = *code_out * 16 +
                    (unsigned)(isdigit((unsigned char)*at) ? *at - '0' : (*at | 32) - 'a' + 10);
    }
    return true;
}

static size_t decode_escape(const char **at, const char *end, char *out)
{
    static const char names[] = "nrtbf", values[] = "\n\r\t\b\f";
    const char *name = strchr(names, **at);
    unsigned code, low;

    if (**at == 'u' && read_code(*at + 1, end, &code)) {
        *at += 4;
        if (code >> 10 == 0x36 && end - *at > 6 && (*at)[1] == '\\' && (*at)[2] == 'u' &&
            read_code(*at + 3, end, &low) && low >> 10 == 0x37) {
            code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
            *at += 6;
        }
        return put_character(code, out);
    }
    out[0] = name != NULL ? values[name - names] : **at;
    return 1;
}

/* The text of a JSON string; of a longer one its end where `tail`, else its beginning. */
static void decode_string(span value, bool tail, char *out, size_t bytes)
{
    size_t used = 0;

    out[0] = '\0';
    if (!is_string(value))
        return;
    for (const char *at = value.at + 1; at < value.end - 1; at++) {
        char character[4] = {*at};
        size_t n = 1;

        if (*at == '\\') {
            at++;
            n = decode_escape(&at, value.end, character);
        }
        if (used + n >= bytes) {
            size_t drop = bytes / 2;

            if (!tail)
                break;
            used -= drop;
            memmove(out, out + drop, used);
        }
        memcpy(out + used, character, n);
        used += n;
    }
    out[used] = '\0';
}

/* A number, also one in a string. */
static int64_t number_of(span value)
{
    char text[24] = "";
    size_t length = value.at != NULL ? (size_t)(value.end - value.at) : 0;

    if (is_string(value)) {
        decode_string(value, false, text, sizeof(text));
    } else if (length < sizeof(text) && length > 0) {
        memcpy(text, value.at, length);
        text[length] = '\0';
    }
    return strtoll(text, NULL, 10);
}

bool trii_error_file_read(const char *path, trii_error_file *error_out)
{
    trii_mapping file;
    span message, info, stamp;

    memset(error_out, 0, sizeof(*error_out));
    if (trii_mapping_open(path, &file) != TRI_OK)
        return false;
    info = (span){file.data, (const char *)file.data + file.bytes};
    stamp = find_key(info, "timestamp");
    message = find_key(info, "message");
    if (message.at != NULL && !is_string(message)) {
        info = find_key(message, "extraInfo");
        stamp = find_key(info, "timestamp");
        decode_string(find_key(info, "py_callstack"), true, error_out->traceback,
                      sizeof(error_out->traceback));
        message = find_key(message, "message");
    }
    decode_string(message, false, error_out->message, sizeof(error_out->message));
    error_out->timestamp = number_of(stamp);
    trii_mapping_close(&file);
    return error_out->message[0] != '\0';
}

tri_status trii_error_file_copy(const char *from, const char *to, int exit_code)
{
    trii_mapping file;
    trii_writer writer;
    span message;
    char code[48] = "";
    size_t before = 0;
    tri_status status = trii_mapping_open(from, &file);

    if (status != TRI_OK)
        return status;
    message = find_key((span){file.data, (const char *)file.data + file.bytes}, "message");
    if (message.at != NULL && *message.at == '{') {
        before = (size_t)(message.at + 1 - (const char *)file.data);
        snprintf(code, sizeof(code), "\"errorCode\": %d%s", exit_code,
                 *skip_blank(message.at + 1, message.end) == '}' ? "" : ", ");
    }
    status = trii_writer_open(to, &writer);
    if (status == TRI_OK) {
        status = trii_writer_put(&writer, file.data, before);
        if (status == TRI_OK)
            status = trii_writer_put(&writer, code, strlen(code));
        if (status == TRI_OK)
            status =
                trii_writer_put(&writer, (const char *)file.data + before, file.bytes - before);
        if (status == TRI_OK)
            status = trii_writer_publish(&writer);
        else
            trii_writer_abort(&writer);
    }
    trii_mapping_close(&file);
    return status;
}
