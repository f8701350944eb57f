/*
 * site.h - the caller's source line, left by the wrapper macros of the public headers.
 */
#ifndef TRII_SITE_H
#define TRII_SITE_H

#include <trireme/call_site.h>

typedef tri_site trii_site;

/* The site of the call that is running on this thread; forgets it, so that an unwrapped
 * call is never blamed on an older line. */
trii_site trii_site_take(void);
/* The newest site of this thread, taken or not. For recorded operations: one wrapped call, such
 * as a model's forward, records many, and inner calls of one expression are all of its line. */
trii_site trii_site_last(void);
/* Where this thread keeps it, for who asks at each operation: a call into a library and a
 * thread-local of it are 20 instructions. Valid while the thread lives. */
const trii_site *trii_site_here(void);

#endif
