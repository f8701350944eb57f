/*
 * export.h - what a public declaration is marked with.
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

#ifdef __cplusplus
#define TRI_BEGIN_DECLS extern "C" {
#define TRI_END_DECLS }
#else
#define TRI_BEGIN_DECLS
#define TRI_END_DECLS
#endif

#endif
