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
