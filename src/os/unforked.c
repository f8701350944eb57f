/*
 * unforked.c - see unforked.h.
 */
/* build: leaf */
#include "os/unforked.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "os/descriptor.h"

/* Held over a fork, so that the child sees the ring whole. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static trii_unforked ring = {.fd = -1, .prev = &ring, .next = &ring}; /* guard: lock */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    int nothing =
        ring.next != &ring ? trii_fd_above_standard(open("/dev/null", O_RDWR | O_CLOEXEC)) : -1;

    for (trii_unforked *own = ring.next; own != &ring; own = own->next) {
        if (nothing < 0 || dup3(nothing, own->fd, O_CLOEXEC) < 0)
            close(own->fd);
    }
    if (nothing >= 0)
        close(nothing);
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

void trii_unforked_hold(trii_unforked *own, int fd)
{
    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    own->fd = fd;
    own->prev = &ring;
    own->next = ring.next;
    ring.next->prev = own;
    ring.next = own;
    pthread_mutex_unlock(&lock);
}

void trii_unforked_drop(trii_unforked *own)
{
    pthread_mutex_lock(&lock); /* a neighbour that goes writes into this one */
    if (own->next != NULL) {
        own->prev->next = own->next;
        own->next->prev = own->prev;
        own->prev = own->next = NULL;
    }
    pthread_mutex_unlock(&lock);
}
