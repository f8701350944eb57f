/*
 * forked.c - see forked.h.
 */
/* build: leaf */
#include "os/forked.h"

#include <pthread.h>

atomic_bool trii_forked;
static atomic_bool watched;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_store(&trii_forked, true);
}

static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
    atomic_store(&watched, true);
}

void trii_forked_watch(void)
{
    (void)pthread_once(&once, watch);
}

bool trii_forked_watched(void)
{
    return atomic_load(&watched);
}

atomic_int trii_fork_level;
static pthread_once_t level_once = PTHREAD_ONCE_INIT;

static void raise_level(void)
{
    atomic_fetch_add(&trii_fork_level, 1);
}

static void watch_level(void)
{
    (void)pthread_atfork(NULL, NULL, raise_level);
}

void trii_fork_level_watch(void)
{
    (void)pthread_once(&level_once, watch_level);
}
