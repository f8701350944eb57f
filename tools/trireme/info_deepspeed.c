/*
 * info_deepspeed.c - `trireme info deepspeed FILE`: what each key of a DeepSpeed configuration does
 * here, or the first mistake in it. Batch sizes are left to tri_initialize, which knows the ranks.
 */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "train/deepspeed/config_keys.h"
#include "train/deepspeed/engine_config.h"

#define MAX_PATH 128

static void print_row(const trii_conf *value, const char *path)
{
    const trii_key *key = trii_key_find(path);
    const bool idle = key != NULL && key->decision == TRII_KEY_IDLE;
    const bool off = key != NULL && key->decision == TRII_KEY_OFF;

    printf("%-56s %-12.60s %s%s\n", path, trii_conf_spelling(value),
           idle  ? "no effect: "
           : off ? "off"
                 : "taken",
           idle ? key->note : "");
}

/* Blocks whose keys the table lists are opened, others are one row. */
static void print_block(const trii_conf *block, const char *path)
{
    char full[MAX_PATH];

    for (const trii_conf *c = block->child; c != NULL; c = c->next) {
        const trii_key *key;

        snprintf(full, sizeof(full), "%s%s%.60s", path, path[0] != '\0' ? "." : "", c->key);
        key = trii_key_find(full);
        if (c->kind == TRII_CONF_BLOCK && c->child != NULL &&
            (key == NULL || key->decision == TRII_KEY_TAKEN))
            print_block(c, full);
        else
            print_row(c, full);
    }
}

int info_deepspeed(const char *path)
{
    trii_engine_config c;
    int result = COMMAND_OK;

    if (trii_engine_config_check(&c, path) == TRI_OK) {
        print_block(c.root, "");
    } else {
        fprintf(stderr, "trireme info: %s\n", tri_last_error());
        result = COMMAND_FAILED;
    }
    trii_engine_config_fini(&c);
    return result;
}
