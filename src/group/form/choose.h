/*
 * choose.h - which engines serve a group: what the user says, as text, and making them.
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

/* An engine by name (NULL: the best that serves all ranks), made for a group. args->store is
 * replaced meanwhile. Blocks until all ranks are connected. */
tri_status trii_engine_make(const char *name, tri_store *store, trii_group_args *args,
                            const trii_engine **engine_out, void **self_out) TRI_MUST_CHECK;

/* Of a rank that cannot choose as the others do: says `why`, with the line, in the first step of
 * each of the engines that are built in, where they may wait for it. Returns it; waits for nobody.
 */
tri_status trii_engine_refuse(tri_store *store, trii_group_args *args,
                              tri_status why) TRI_MUST_CHECK;

/* An engine that does not compare the ranks' calls becomes one that does (checked.c), if
 * TRI_CHECK_CALLS asks for it, and if it was asked for by name: what is chosen for all ranks
 * compares by itself, and is the one that compares for others. On failure the engine is as it was.
 */
tri_status trii_compared_make(tri_store *store, trii_group_args *args,
                              const trii_engine **engine_inout, void **self_inout) TRI_MUST_CHECK;

/* Several engines as one, by rules (routed.c); no engine of a name. */
extern const trii_engine trii_engine_mixed;
#define TRII_MIXED_STEP "room" /* its first: trii_engine_refuse speaks there too */
tri_status trii_mixed_make(const trii_choice *choice, const char *text, tri_store *store,
                           trii_group_args *args, void **self_out) TRI_MUST_CHECK;

#endif
