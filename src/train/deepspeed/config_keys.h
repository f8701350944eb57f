/*
 * config_keys.h - every key of DeepSpeed 0.19.8's configuration, and what it does here.
 */
#ifndef TRII_CONFIG_KEYS_H
#define TRII_CONFIG_KEYS_H

typedef enum trii_key_decision {
    TRII_KEY_TAKEN,
    TRII_KEY_IDLE, /* accepted, without effect: the note says why */
    TRII_KEY_OFF,  /* accepted where it is off (false, 0, null, "none"): the note says what else */
    TRII_KEY_REFUSED /* the note says since when, and what instead */
} trii_key_decision;

typedef enum trii_key_kind {
    TRII_KEY_BLOCK,
    TRII_KEY_SWITCH,
    TRII_KEY_WHOLE, /* a number without a fraction */
    TRII_KEY_NUMBER,
    TRII_KEY_TEXT,
    TRII_KEY_CHOICE, /* of texts that the range lists: "mean|sum" */
    TRII_KEY_FREE    /* anything, checked elsewhere or not at all */
} trii_key_kind;

typedef struct trii_key {
    const char *path;
    trii_key_kind kind;
    trii_key_decision decision;
    double least, most;  /* of numbers */
    const char *choices; /* of a choice */
    const char *note;
} trii_key;

extern const trii_key trii_keys[];
extern const int trii_keys_count;

const trii_key *trii_key_find(const char *path);

#endif
