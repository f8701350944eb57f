/*
 * config_check.h - checks that several parts of a configuration share.
 */
#ifndef TRII_CONFIG_CHECK_H
#define TRII_CONFIG_CHECK_H

#include "train/deepspeed/config_keys.h"
#include "train/deepspeed/engine_config.h"

/* Of the names the one that `key` is most likely to be meant as; NULL if none is near. */
const char *trii_conf_nearest(const char *key, const char *const *names, int n);
/* One value against a key's kind and range. */
tri_status trii_conf_check_value(const trii_engine_config *c, const trii_conf *value,
                                 const trii_key *key) TRI_MUST_CHECK;
/* All members of a block are among these keys, whose paths are names in the block. */
tri_status trii_conf_check_block(const trii_engine_config *c, const char *path,
                                 const trii_key *keys, int n) TRI_MUST_CHECK;

#endif
