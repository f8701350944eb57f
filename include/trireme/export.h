/*
 * export.h - what a public declaration is marked with, and how structs keep room to grow.
 */
#ifndef TRIREME_EXPORT_H
#define TRIREME_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRI_VERSION_MAJOR 0
#define TRI_VERSION_MINOR 1
#define TRI_VERSION_PATCH 0

#if defined(__GNUC__)
#define TRI_API __attribute__((visibility("default")))
#define TRI_MUST_CHECK __attribute__((warn_unused_result))
#define TRI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TRI_API
#define TRI_MUST_CHECK
#define TRI_PRINTF(text, first)
#endif

/* The end of a struct that programs write, or that the library writes into a program's memory: room
 * in which later versions put fields, so that its size stays. A program starts from {0} (C++: {},
 * since -Wextra warns of the other) and sets what it changes by name. What is not zero is refused
 * (INVALID_ARG, with the name of the struct): either the struct was not zeroed, or the program was
 * compiled for a newer library and sets a field that this one does not know. A struct that the
 * library fills need not be zeroed: it is written whole, with 0 in the room. */
#define TRI_RESERVED(n) uint64_t reserved[n]

#ifdef __cplusplus
#define TRI_BEGIN_DECLS extern "C" {
#define TRI_END_DECLS }
#else
#define TRI_BEGIN_DECLS
#define TRI_END_DECLS
#endif

#endif
