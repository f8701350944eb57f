/*
 * fake_resolver.h - a program's own name service, instead of the C library's: no name exists, and
 * what an answer takes is the test's. Included by one file of a program.
 */
#ifndef TEST_FAKE_RESOLVER_H
#define TEST_FAKE_RESOLVER_H

/* The test's own: called by each question, on the thread that asks; the answer is given when it
 * returns. */
static void resolver_asked(void);

struct addrinfo;
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **res);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **res)
{
    (void)node;
    (void)service;
    (void)hints;
    (void)res;
    resolver_asked();
    return -2; /* EAI_NONAME */
}

#endif
