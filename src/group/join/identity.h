/*
 * identity.h - which job a store serves, and which process has which rank: each process writes it
 * when it joins, so that two jobs at one store, or one rank that is started twice, end with an
 * error that names both instead of a timeout.
 */
#ifndef TRII_IDENTITY_H
#define TRII_IDENTITY_H

#include <trireme/store.h>

#include "group/join/env.h"

#define TRII_IDENTITY_TEXT 160

/* "process 123 on node1": this one. */
void trii_identity_text(char who_out[TRII_IDENTITY_TEXT]);
/* Whether a text of trii_identity_text means another process of this host that has not ended. */
bool trii_identity_is_other(const char *who);

/* Every rank, with the store or a view of it. Errors: STATE (it serves another job; tells both). */
tri_status trii_identity_claim_job(tri_store *store, const trii_launch_env *env) TRI_MUST_CHECK;
/* Errors: STATE (tells who has the rank). */
tri_status trii_identity_claim_rank(tri_store *store, const trii_launch_env *env) TRI_MUST_CHECK;
/* So that it may come again: a program that ends and one that begins can be the same rank. */
tri_status trii_identity_drop_rank(tri_store *store, int rank) TRI_MUST_CHECK;
/* Fails with STATE. */
tri_status trii_identity_is_taken(const trii_launch_env *env, const char *by) TRI_MUST_CHECK;

#endif
