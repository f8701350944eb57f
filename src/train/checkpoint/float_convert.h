/*
 * float_convert.h - elements of one type of float as those of another, for files: rounded once, to
 * the nearest, and to even where two are as near.
 */
#ifndef TRII_FLOAT_CONVERT_H
#define TRII_FLOAT_CONVERT_H

#include <stddef.h>

#include <trireme/types.h>

/* f64, f32, f16 and bf16: others stay as they are in a file that is converted. */
bool trii_float_is_converted(tri_dtype dtype);
/* n elements; the types are among those. */
void trii_float_convert(tri_dtype from_type, const void *from, tri_dtype to_type, void *to,
                        size_t n);

#endif
