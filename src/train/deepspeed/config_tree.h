/*
 * config_tree.h - the text of a configuration as a tree whose values know their lines.
 *
 * The language is JSON with what DeepSpeed's reader takes besides: comments (#, // and slash-star),
 * a comma before a closing bracket, keys without quotes. Jansson keeps no lines of keys, in which
 * mistakes are named here, and no spelling of numbers.
 */
#ifndef TRII_CONFIG_TREE_H
#define TRII_CONFIG_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

typedef enum trii_conf_kind {
    TRII_CONF_NULL,
    TRII_CONF_BOOL,
    TRII_CONF_NUMBER,
    TRII_CONF_TEXT,
    TRII_CONF_LIST,
    TRII_CONF_BLOCK
} trii_conf_kind;

typedef struct trii_conf {
    trii_conf_kind kind;
    char *key;     /* NULL in a list, and of the root */
    char *text;    /* of a text its contents, of what is no list or block its spelling */
    double number; /* of a number; 1 for true */
    int line;      /* of the key, or of the value where there is none */
    struct trii_conf *child, *next;
} trii_conf;

/* `name` is that of the file, for messages. Errors: FORMAT (names line, column and what was
 * expected; a key that comes twice), NO_MEMORY. */
tri_status trii_conf_parse(const char *name, const char *text, size_t bytes,
                           trii_conf **root_out) TRI_MUST_CHECK;
void trii_conf_free(trii_conf *conf); /* NULL allowed */
/* A member of a block; NULL if there is none, or the block is NULL or something else. */
const trii_conf *trii_conf_member(const trii_conf *block, const char *key);
/* The same by a path from the root, such as "fp16.enabled"; NULL also for what is null. */
const trii_conf *trii_conf_find(const trii_conf *root, const char *path);
/* A number, or a text that is one. */
bool trii_conf_number(const trii_conf *value, double *number_out);
/* What stands in the file, for messages: short, never NULL. */
const char *trii_conf_spelling(const trii_conf *value);

#endif
