/*
 * robust_futex.c - see robust_futex.h. The control thread gets a robust list of its own, in place
 * of the one that the C library keeps for robust mutexes: that thread locks none.
 */
/* build: leaf */
#include "os/robust_futex.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel walks: entries point to the next one, the last one back to the head. */
static struct robust_list_head head = {
    .list = {.next = &head.list},
    .futex_offset = offsetof(trii_robust_futex, word),
};

_Static_assert(offsetof(trii_robust_futex, next) == 0 &&
                   sizeof(void *) == sizeof(struct robust_list),
               "a robust futex begins as the kernel's entry");

void trii_robust_futex_hold(trii_robust_futex *futex)
{
    static _Thread_local bool registered;

    if (!registered && syscall(SYS_set_robust_list, &head, sizeof(head)) != 0)
        return;
    registered = true;
    futex->next = head.list.next;
    head.list.next = (struct robust_list *)(void *)futex;
    atomic_store(&futex->word, (int)((unsigned)syscall(SYS_gettid) | FUTEX_WAITERS));
}

void trii_robust_futex_release(trii_robust_futex *futex)
{
    struct robust_list *at = &head.list;

    while (at->next != &head.list && at->next != (struct robust_list *)(void *)futex)
        at = at->next;
    if (at->next == &head.list)
        return;
    at->next = futex->next;
    atomic_store(&futex->word, 0);
}

bool trii_robust_futex_owner_died(int word)
{
    return ((unsigned)word & FUTEX_OWNER_DIED) != 0;
}
