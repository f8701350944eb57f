/*
 * forked.c - see forked.h.
 */
#include "os/forked.h"

#include <pthread.h>
#include <stdbool.h>

atomic_bool trii_forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_store(&trii_forked, true);
}

static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

void trii_forked_watch(void)
{
    (void)pthread_once(&once, watch);
}
