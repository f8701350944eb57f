/*
 * etcd_json.c - see etcd_json.h.
 */
#include "rendezvous-etcd/etcd_json.h"

#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"

/* --- base64, the standard alphabet with padding --------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : (c == '/' ? 63 : -1);
}

/* out has room for three bytes of every four. */
static bool decode(const char *text, size_t n, char *out, size_t *bytes_out)
{
    size_t used = 0;

    if (n % 4 != 0)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        bool last = i + 4 == n;
        int pad = last && text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        unsigned word = 0;

        for (size_t k = 0; k < 4; k++) {
            int digit = k >= 4 - (size_t)pad ? 0 : digit_of(text[i + k]);

            if (digit < 0)
                return false;
            word = word << 6 | (unsigned)digit;
        }
        for (int k = 0; k < 3 - pad; k++)
            out[used++] = (char)(word >> (16 - 8 * k) & 255u);
    }
    *bytes_out = used;
    return true;
}

/* --- requests ------------------------------------------------------------- */

void trii_etcd_put_text(trii_wire_buffer *out, const char *text)
{
    trii_wire_put(out, text, strlen(text));
}

void trii_etcd_put_int(trii_wire_buffer *out, int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "\"%lld\"", (long long)number);
    trii_etcd_put_text(out, text);
}

void trii_etcd_put_bytes(trii_wire_buffer *out, const void *data, size_t bytes)
{
    const unsigned char *in = data;
    char piece[512];
    size_t used = 0;

    trii_etcd_put_text(out, "\"");
    for (size_t i = 0; i < bytes; i += 3) {
        size_t n = bytes - i < 3 ? bytes - i : 3;
        unsigned word = (unsigned)in[i] << 16 | (n > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                        (n > 2 ? in[i + 2] : 0u);

        piece[used++] = digits[word >> 18];
        piece[used++] = digits[word >> 12 & 63];
        piece[used++] = n > 1 ? digits[word >> 6 & 63] : '=';
        piece[used++] = n > 2 ? digits[word & 63] : '=';
        if (used == sizeof(piece)) {
            trii_wire_put(out, piece, used);
            used = 0;
        }
    }
    trii_wire_put(out, piece, used);
    trii_etcd_put_text(out, "\"");
}

void trii_etcd_put_string(trii_wire_buffer *out, const char *text)
{
    char escaped[8];

    trii_etcd_put_text(out, "\"");
    for (; *text != '\0'; text++) {
        bool plain = *text != '"' && *text != '\\' && (unsigned char)*text >= ' ';

        snprintf(escaped, sizeof(escaped), plain ? "%c" : "\\u%04x", (unsigned char)*text);
        trii_etcd_put_text(out, escaped);
    }
    trii_etcd_put_text(out, "\"");
}

/* --- answers -------------------------------------------------------------- */

static int64_t number_of(const json_t *value)
{
    const char *text = json_string_value(value);

    if (json_is_integer(value))
        return json_integer_value(value);
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

static int64_t number_in(const json_t *object, const char *name)
{
    return number_of(json_object_get(object, name));
}

static tri_status read_bytes(const json_t *value, char **own_out, size_t *bytes_out)
{
    const char *text = json_string_value(value);
    size_t n = text != NULL ? json_string_length(value) : 0;
    char *data = trii_alloc(n / 4 * 3 + 1, 1, "value of etcd");

    if (data == NULL)
        return TRI_ERR_NO_MEMORY;
    if (!decode(text != NULL ? text : "", n, data, bytes_out)) {
        trii_free(data);
        return TRII_FAIL(TRI_ERR_FORMAT, "a key or value is not in base64");
    }
    data[*bytes_out] = '\0';
    *own_out = data;
    return TRI_OK;
}

static tri_status read_kv(const json_t *object, int op, bool deleted, trii_etcd_reply *reply)
{
    trii_etcd_kv *kv = &reply->kvs[reply->n_kvs];
    tri_status status;

    memset(kv, 0, sizeof(*kv));
    kv->op = op;
    kv->deleted = deleted;
    kv->mod_revision = number_in(object, "mod_revision");
    reply->n_kvs++;
    status = read_bytes(json_object_get(object, "key"), &kv->key, &kv->key_bytes);
    return status == TRI_OK
               ? read_bytes(json_object_get(object, "value"), &kv->value, &kv->value_bytes)
               : status;
}

static tri_status make_room(trii_etcd_reply *reply, size_t more)
{
    trii_etcd_kv *kvs;

    if (more == 0)
        return TRI_OK;
    if (more > INT_MAX / 2 - (size_t)reply->n_kvs)
        return TRII_FAIL(TRI_ERR_FORMAT, "too many keys");
    kvs = trii_realloc(reply->kvs, (size_t)reply->n_kvs + more, sizeof(*kvs), "keys of etcd");
    if (kvs == NULL)
        return TRI_ERR_NO_MEMORY;
    reply->kvs = kvs;
    return TRI_OK;
}

/* The answer to a range, or to a delete. */
static tri_status read_range(const json_t *object, int op, trii_etcd_reply *reply)
{
    const json_t *kvs = json_object_get(object, "kvs");
    size_t n = json_array_size(kvs);
    tri_status status = make_room(reply, n);

    reply->count += number_in(object, "count") + number_in(object, "deleted");
    for (size_t i = 0; i < n && status == TRI_OK; i++)
        status = read_kv(json_array_get(kvs, i), op, false, reply);
    return status;
}

static tri_status read_responses(const json_t *responses, trii_etcd_reply *reply)
{
    static const char *const kinds[] = {"response_range", "response_delete_range"};
    tri_status status = TRI_OK;

    for (size_t i = 0; i < json_array_size(responses) && status == TRI_OK; i++) {
        for (size_t k = 0; k < TRII_COUNT_OF(kinds) && status == TRI_OK; k++) {
            const json_t *one = json_object_get(json_array_get(responses, i), kinds[k]);

            if (one != NULL)
                status = read_range(one, (int)i, reply);
        }
    }
    return status;
}

static tri_status read_events(const json_t *events, trii_etcd_reply *reply)
{
    size_t n = json_array_size(events);
    tri_status status = make_room(reply, n);

    for (size_t i = 0; i < n && status == TRI_OK; i++) {
        const json_t *event = json_array_get(events, i);
        const char *type = json_string_value(json_object_get(event, "type"));

        status = read_kv(json_object_get(event, "kv"), 0,
                         type != NULL && strcmp(type, "DELETE") == 0, reply);
    }
    return status;
}

/* What etcd 3.4 says beside a body, and later ones, and what is in a stream. */
static void read_failure(const json_t *object, trii_etcd_reply *reply)
{
    const json_t *error = json_object_get(object, "error");
    const json_t *inner = json_is_object(error) ? error : object;
    const char *text = json_string_value(json_object_get(inner, "message"));

    if (text == NULL)
        text = json_string_value(error);
    reply->code = (int)(number_in(inner, "code") + number_in(inner, "grpc_code"));
    reply->failed = error != NULL || (text != NULL && reply->code != 0);
    if (reply->failed)
        snprintf(reply->message, sizeof(reply->message), "%s", text != NULL ? text : "no reason");
}

static tri_status read_object(const json_t *object, trii_etcd_reply *reply)
{
    const char *token = json_string_value(json_object_get(object, "token"));
    tri_status status;

    reply->revision = number_in(json_object_get(object, "header"), "revision");
    reply->succeeded = json_is_true(json_object_get(object, "succeeded"));
    reply->lease = number_in(object, "ID");
    reply->ttl = number_in(object, "TTL");
    reply->created = json_is_true(json_object_get(object, "created"));
    reply->canceled = json_is_true(json_object_get(object, "canceled"));
    reply->compact_revision = number_in(object, "compact_revision");
    if (token != NULL && strlen(token) >= sizeof(reply->token))
        return TRII_FAIL(TRI_ERR_FORMAT, "a token of %zu characters, at most %zu", strlen(token),
                         sizeof(reply->token) - 1);
    snprintf(reply->token, sizeof(reply->token), "%s", token != NULL ? token : "");
    status = read_range(object, 0, reply);
    if (status == TRI_OK)
        status = read_responses(json_object_get(object, "responses"), reply);
    if (status == TRI_OK)
        status = read_events(json_object_get(object, "events"), reply);
    return status;
}

tri_status trii_etcd_reply_read(const char *text, size_t bytes, trii_etcd_reply *reply_out)
{
    trii_etcd_reply reply = {0};
    json_error_t error;
    json_t *whole = json_loadb(text, bytes, 0, &error);
    const json_t *result = json_object_get(whole, "result");
    tri_status status = TRI_OK;

    if (!json_is_object(whole)) {
        json_decref(whole);
        return TRII_FAIL(TRI_ERR_FORMAT, "an answer that is not a JSON object: \"%.*s\"",
                         (int)(bytes < 60 ? bytes : 60), text);
    }
    read_failure(whole, &reply);
    if (!reply.failed)
        status = read_object(result != NULL ? result : whole, &reply);
    json_decref(whole);
    if (status == TRI_OK)
        *reply_out = reply;
    else
        trii_etcd_reply_fini(&reply);
    return status;
}

void trii_etcd_reply_fini(trii_etcd_reply *reply)
{
    for (int i = 0; i < reply->n_kvs; i++) {
        trii_free(reply->kvs[i].key);
        trii_free(reply->kvs[i].value);
    }
    trii_free(reply->kvs);
    memset(reply, 0, sizeof(*reply));
}
