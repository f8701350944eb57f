/*
 * config_tree.c - see config_tree.h. A reader by recursive descent of one character at a time.
 */
#include "train/deepspeed/config_tree.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#define MAX_DEPTH 32

typedef struct reader {
    const char *name, *at, *end, *line_start;
    int line, depth;
} reader;

static tri_status refuse(const reader *r, const char *what)
{
    return TRII_FAIL(TRI_ERR_FORMAT, "%s:%d:%d: %s", r->name, r->line,
                     (int)(r->at - r->line_start) + 1, what);
}

static tri_status expected(const reader *r, const char *what)
{
    unsigned char c = r->at < r->end ? (unsigned char)*r->at : 0;

    if (r->at == r->end)
        return TRII_FAIL(TRI_ERR_FORMAT, "%s:%d: the text ends where %s is expected", r->name,
                         r->line, what);
    return TRII_FAIL(TRI_ERR_FORMAT,
                     c >= 0x20 && c < 0x7F ? "%s:%d:%d: %s is expected, not '%c'"
                                           : "%s:%d:%d: %s is expected, not byte %d",
                     r->name, r->line, (int)(r->at - r->line_start) + 1, what, c);
}

/* --- what lies between ---------------------------------------------------- */

static void advance(reader *r)
{
    if (*r->at++ == '\n') {
        r->line++;
        r->line_start = r->at;
    }
}

static bool follows(const reader *r, const char *text)
{
    size_t n = strlen(text);

    return (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

static tri_status skip_block_comment(reader *r)
{
    const reader begin = *r;

    r->at += 2;
    while (r->at < r->end && !follows(r, "*/"))
        advance(r);
    if (r->at == r->end)
        return refuse(&begin, "this comment has no end");
    r->at += 2;
    return TRI_OK;
}

static tri_status skip(reader *r)
{
    tri_status status = TRI_OK;

    while (r->at < r->end && status == TRI_OK) {
        if (strchr(" \t\r\n", *r->at) != NULL && *r->at != '\0') {
            advance(r);
        } else if (*r->at == '#' || follows(r, "//")) {
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        } else if (follows(r, "/*")) {
            status = skip_block_comment(r);
        } else {
            break;
        }
    }
    return status;
}

/* --- texts ---------------------------------------------------------------- */

static char *copy(const char *from, size_t n)
{
    char *text = trii_alloc(n + 1, 1, "configuration");

    if (text != NULL)
        memcpy(text, from, n);
    return text;
}

/* Checkpoints have them in JSON, which takes nothing else: better now than after hours. */
static bool is_utf8(const char *text)
{
    size_t n;

    while (*text != '\0' && (n = trii_utf8_character(text)) > 0)
        text += n;
    return *text == '\0';
}

static bool read_hex(const char *at, const char *end, unsigned *value_out)
{
    *value_out = 0;
    if (end - at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)at[i]))
            return false;
        *value_out =
            *value_out * 16 +
            (unsigned)(isdigit((unsigned char)at[i]) ? at[i] - '0' : (at[i] | 0x20) - 'a' + 10);
    }
    return true;
}

static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xE0 | c >> 12);
        } else {
            *to++ = (char)(0xF0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

/* After the backslash and the u; a pair of surrogates is one character. */
static char *read_unicode(reader *r, char *to)
{
    unsigned high, low;

    if (!read_hex(r->at, r->end, &high) || high == 0)
        return NULL;
    r->at += 4;
    if (high < 0xD800 || high > 0xDFFF)
        return put_utf8(to, high);
    if (high > 0xDBFF || !follows(r, "\\u") || !read_hex(r->at + 2, r->end, &low) || low < 0xDC00 ||
        low > 0xDFFF)
        return NULL;
    r->at += 6;
    return put_utf8(to, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
}

static char *read_escape(reader *r, char *to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *which;

    r->at++;
    if (r->at < r->end && *r->at == 'u') {
        r->at++;
        return read_unicode(r, to);
    }
    which = r->at < r->end && *r->at != '\0' ? strchr(names, *r->at) : NULL;
    if (which == NULL)
        return NULL;
    r->at++;
    *to++ = values[which - names];
    return to;
}

static tri_status read_quoted(reader *r, char **text_out)
{
    const reader begin = *r;
    const char *close = ++r->at;
    char *text, *to;

    while (close < r->end && *close != '"' && *close != '\n')
        close += *close == '\\' && close + 1 < r->end ? 2 : 1;
    if (close >= r->end || *close != '"')
        return refuse(&begin, "this text has no closing quote");
    text = to = copy(r->at, (size_t)(close - r->at));
    if (text == NULL)
        return TRI_ERR_NO_MEMORY;
    while (r->at < close && to != NULL) {
        if (*r->at == '\\')
            to = read_escape(r, to);
        else if ((unsigned char)*r->at < 0x20)
            to = NULL;
        else
            *to++ = *r->at++;
    }
    if (to == NULL) {
        trii_free(text);
        return refuse(r, "a text of JSON does not have this character or escape");
    }
    *to = '\0';
    if (!is_utf8(text)) {
        trii_free(text);
        return refuse(&begin, "this text is not UTF-8");
    }
    r->at = close + 1;
    *text_out = text;
    return TRI_OK;
}

static tri_status read_key(reader *r, char **key_out)
{
    const char *from = r->at;

    if (r->at < r->end && *r->at == '"')
        return read_quoted(r, key_out);
    while (r->at < r->end &&
           (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '-' || *r->at == '.'))
        r->at++;
    if (r->at == from)
        return expected(r, "a key or }");
    *key_out = copy(from, (size_t)(r->at - from));
    return *key_out != NULL ? TRI_OK : TRI_ERR_NO_MEMORY;
}

/* --- values --------------------------------------------------------------- */

/* With a point, whatever the locale of the program. */
static bool to_number(const char *text, double *number_out)
{
    locale_t c;
    char *end;

    if (text[0] == '\0' || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* that one is there without memory */
    *number_out = strtod_l(text, &end, c);
    freelocale(c);
    return *end == '\0' && isfinite(*number_out);
}

static tri_status read_word(reader *r, trii_conf *value)
{
    const char *from = r->at;
    size_t n;

    while (r->at < r->end && (isalnum((unsigned char)*r->at) || strchr("+-._", *r->at) != NULL) &&
           *r->at != '\0')
        r->at++;
    n = (size_t)(r->at - from);
    if (n == 0)
        return expected(r, "a value");
    value->text = copy(from, n);
    if (value->text == NULL)
        return TRI_ERR_NO_MEMORY;
    if (strcmp(value->text, "true") == 0 || strcmp(value->text, "false") == 0) {
        value->kind = TRII_CONF_BOOL;
        value->number = value->text[0] == 't';
    } else if (strcmp(value->text, "null") == 0) {
        value->kind = TRII_CONF_NULL;
    } else if (to_number(value->text, &value->number)) {
        value->kind = TRII_CONF_NUMBER;
    } else {
        return TRII_FAIL(TRI_ERR_FORMAT,
                         "%s:%d:%d: %.64s is not a value: texts have quotes, switches are true or "
                         "false",
                         r->name, r->line, (int)(from - r->line_start) + 1, value->text);
    }
    return TRI_OK;
}

static tri_status read_value(reader *r, trii_conf *value);

/* The first of a key that comes twice is the mistake as often as the second: both are named. */
static tri_status check_twice(const reader *r, const trii_conf *block, const trii_conf *member)
{
    const trii_conf *first = trii_conf_member(block, member->key);

    if (first == NULL || first == member)
        return TRI_OK;
    return TRII_FAIL(TRI_ERR_FORMAT, "%s:%d: %s is there twice, in line %d, too: remove one",
                     r->name, member->line, member->key, first->line);
}

static tri_status read_member(reader *r, trii_conf *block, trii_conf *member)
{
    tri_status status = TRI_OK;

    member->line = r->line;
    if (block->kind == TRII_CONF_BLOCK) {
        status = read_key(r, &member->key);
        if (status == TRI_OK)
            status = check_twice(r, block, member);
        if (status == TRI_OK)
            status = skip(r);
        if (status == TRI_OK && (r->at == r->end || *r->at != ':'))
            status = expected(r, "a colon after the key");
        if (status == TRI_OK)
            r->at++;
        if (status == TRI_OK)
            status = skip(r);
    }
    return status == TRI_OK ? read_value(r, member) : status;
}

static tri_status read_members(reader *r, trii_conf *block)
{
    const reader begin = *r;
    const char close = block->kind == TRII_CONF_BLOCK ? '}' : ']';
    trii_conf **tail = &block->child;
    tri_status status;

    if (++r->depth > MAX_DEPTH)
        return refuse(r, "more than 32 blocks and lists lie within each other");
    r->at++;
    for (;;) {
        status = skip(r);
        if (status != TRI_OK)
            return status;
        if (r->at == r->end)
            return refuse(&begin, close == '}' ? "this { has no closing }" : "this [ has no ]");
        if (*r->at == close)
            break;
        *tail = trii_alloc(1, sizeof(**tail), "configuration");
        if (*tail == NULL)
            return TRI_ERR_NO_MEMORY;
        status = read_member(r, block, *tail);
        if (status == TRI_OK)
            status = skip(r);
        if (status != TRI_OK)
            return status;
        tail = &(*tail)->next;
        if (r->at < r->end && *r->at == ',')
            r->at++;
        else if (r->at < r->end && *r->at != close)
            return expected(r, close == '}' ? "a comma or }" : "a comma or ]");
    }
    r->at++;
    r->depth--;
    return TRI_OK;
}

static tri_status read_value(reader *r, trii_conf *value)
{
    if (value->line == 0)
        value->line = r->line;
    if (r->at < r->end && (*r->at == '{' || *r->at == '[')) {
        value->kind = *r->at == '{' ? TRII_CONF_BLOCK : TRII_CONF_LIST;
        return read_members(r, value);
    }
    if (r->at < r->end && *r->at == '"') {
        value->kind = TRII_CONF_TEXT;
        return read_quoted(r, &value->text);
    }
    return read_word(r, value);
}

/* --- calls ---------------------------------------------------------------- */

tri_status trii_conf_parse(const char *name, const char *text, size_t bytes, trii_conf **root_out)
{
    reader r = {.name = name, .at = text, .end = text + bytes, .line_start = text, .line = 1};
    trii_conf *root = trii_alloc(1, sizeof(*root), "configuration");
    tri_status status;

    if (root == NULL)
        return TRI_ERR_NO_MEMORY;
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        r.at += 3;
    status = skip(&r);
    if (status == TRI_OK && (r.at == r.end || *r.at != '{'))
        status = expected(&r, "{");
    if (status == TRI_OK)
        status = read_value(&r, root);
    if (status == TRI_OK)
        status = skip(&r);
    if (status == TRI_OK && r.at != r.end)
        status = expected(&r, "the end of the text");
    if (status != TRI_OK) {
        trii_conf_free(root);
        return status;
    }
    *root_out = root;
    return TRI_OK;
}

void trii_conf_free(trii_conf *conf)
{
    while (conf != NULL) {
        trii_conf *next = conf->next;

        trii_conf_free(conf->child);
        trii_free(conf->key);
        trii_free(conf->text);
        trii_free(conf);
        conf = next;
    }
}

const trii_conf *trii_conf_member(const trii_conf *block, const char *key)
{
    if (block == NULL || block->kind != TRII_CONF_BLOCK)
        return NULL;
    for (const trii_conf *c = block->child; c != NULL; c = c->next)
        if (c->key != NULL && strcmp(c->key, key) == 0)
            return c;
    return NULL;
}

const trii_conf *trii_conf_find(const trii_conf *root, const char *path)
{
    char key[64];

    while (root != NULL) {
        size_t n = strcspn(path, ".");

        if (n >= sizeof(key))
            return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        root = trii_conf_member(root, key);
        if (path[n] == '\0')
            break;
        path += n + 1;
    }
    return root == NULL || root->kind == TRII_CONF_NULL ? NULL : root;
}

bool trii_conf_number(const trii_conf *value, double *number_out)
{
    if (value == NULL || (value->kind != TRII_CONF_NUMBER && value->kind != TRII_CONF_TEXT))
        return false;
    if (value->kind == TRII_CONF_TEXT)
        return to_number(value->text, number_out);
    *number_out = value->number;
    return true;
}

const char *trii_conf_spelling(const trii_conf *value)
{
    if (value->kind == TRII_CONF_BLOCK)
        return "{..}";
    if (value->kind == TRII_CONF_LIST)
        return "[..]";
    return value->text != NULL ? value->text : "null";
}
