/*
 * lifeline.c - see lifeline.h. The list of the control thread is not the one that the C library
 * keeps for robust mutexes: that thread has none.
 */
#include "os/lifeline.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel walks: entries point to the next one, the last one back to the head. */
static struct robust_list_head head = {
    .list = {.next = &head.list},
    .futex_offset = offsetof(trii_lifeline, word),
};

_Static_assert(offsetof(trii_lifeline, next) == 0 && sizeof(void *) == sizeof(struct robust_list),
               "a line begins as the kernel's entry");

void trii_lifeline_hold(trii_lifeline *line)
{
    static _Thread_local bool registered;

    if (!registered && syscall(SYS_set_robust_list, &head, sizeof(head)) != 0)
        return;
    registered = true;
    line->next = head.list.next;
    head.list.next = (struct robust_list *)(void *)line;
    atomic_store(&line->word, (int)((unsigned)syscall(SYS_gettid) | FUTEX_WAITERS));
}

void trii_lifeline_drop(trii_lifeline *line)
{
    struct robust_list *at = &head.list;

    while (at->next != &head.list && at->next != (struct robust_list *)(void *)line)
        at = at->next;
    if (at->next == &head.list)
        return;
    at->next = line->next;
    atomic_store(&line->word, 0);
}

bool trii_lifeline_is_cut(int word)
{
    return ((unsigned)word & FUTEX_OWNER_DIED) != 0;
}
