/*
 * choose.h - which engines serve a group: the text of tri_group_options.engine or TRI_ENGINE.
 *
 *     TEXT  = ITEM[,ITEM...]
 *     ITEM  = [GROUP@]ENGINE                      the group's engine; "auto", or none: by layout
 *           | [GROUP@][OPERATION][>=BYTES][<BYTES]:ENGINE
 *
 * GROUP is a group's name, * at its end stands for anything. OPERATION is all_reduce, reduce,
 * reduce_scatter, all_gather, broadcast, gather, scatter, all_to_all (with parts of different sizes
 * too), barrier, or send, which means all messages and has no sizes; without one all collectives
 * are meant, and with cpu, as in PyTorch, everything. BYTES are those of one rank's part (of all,
 * where parts differ), with K, M or G. The first item that fits holds; of engines without a
 * condition the last.
 */
#ifndef TRII_CHOOSE_H
#define TRII_CHOOSE_H

#include "group/engine.h"

#define TRII_ENGINE_NAME 16
#define TRII_ENGINE_TEXT 256 /* the longest */
#define TRII_RULES 8

typedef struct trii_rule {
    uint32_t kinds;
    size_t least, below; /* bytes; below 0 = no limit */
    char engine[TRII_ENGINE_NAME];
} trii_rule;

typedef struct trii_choice {
    char engine[TRII_ENGINE_NAME]; /* "" = by layout */
    int n_rules;
    trii_rule rules[TRII_RULES];
} trii_choice;

/* What the text says for the group of this name. Errors: INVALID_ARG names the item. */
tri_status trii_choice_parse(const char *text, const char *group,
                             trii_choice *choice_out) TRI_MUST_CHECK;
/* The rule for a call, or -1. */
int trii_choice_rule(const trii_choice *choice, const trii_collective *call);

#endif
