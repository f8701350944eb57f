/*
 * gpt2.h - GPT-2 (Radford et al. 2019): tokens i64 [N, T] -> logits [N, T, vocabulary], each from
 * the tokens up to its own. Parameters have the names and shapes of the published safetensors file.
 */
#ifndef EXAMPLES_GPT2_H
#define EXAMPLES_GPT2_H

#include <trireme/checkpoint.h>
#include <trireme/nn.h>

typedef struct gpt_options {
    int64_t layers, width, heads; /* of the published ones: 12, 768, 12 */
    int64_t context, vocabulary;  /* 1024, 50257; T is at most context */
    double dropout;
    tri_dtype dtype; /* NONE: f32 */
} gpt_options;

tri_module *gpt_create(const gpt_options *opt);

/* Names in published files: without "transformer." in front; NULL for what is no parameter (masks
 * of attention) or is there twice (the head, which is wte). */
const char *gpt_name(const char *name);
tri_status gpt_load(tri_module *gpt, const char *path);

#endif
