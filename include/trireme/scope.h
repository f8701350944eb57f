/*
 * scope.h - modes that end with a block, however the block is left: the mechanism of
 * TRI_NO_GRAD and the like. Needs GCC or Clang (the attribute "cleanup"). A part of tensor.h.
 */
#ifndef TRIREME_SCOPE_H
#define TRIREME_SCOPE_H

#include <trireme/export.h>

TRI_BEGIN_DECLS

/* A mode that was begun and that `end` ends. */
typedef struct tri_scope {
    void (*end)(void);
    bool open; /* false: the block has run */
} tri_scope;

static inline void tri_scope_close(tri_scope *scope)
{
    scope->end();
}

TRI_END_DECLS

#define TRI_SCOPE_NAME_2_(number) tri_scope_##number
#define TRI_SCOPE_NAME_(number) TRI_SCOPE_NAME_2_(number)
/* `begin` is an expression that begins the mode and whose value is the function that ends it. Each
 * scope has a name of its own, so that a line may hold several. */
#define TRI_SCOPE_BLOCK_(begin) TRI_SCOPE_BLOCK_NAMED_(begin, TRI_SCOPE_NAME_(__COUNTER__))
#define TRI_SCOPE_BLOCK_NAMED_(begin, name)                                                        \
    for (__attribute__((cleanup(tri_scope_close))) tri_scope name = {begin, true}; name.open;      \
         name.open = false)
#define TRI_SCOPE_HERE_(begin)                                                                     \
    __attribute__((cleanup(tri_scope_close), unused)) tri_scope TRI_SCOPE_NAME_(__COUNTER__) = {   \
        begin, true}

#endif
