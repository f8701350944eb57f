/*
 * gpt2.h - GPT-2 (Radford et al. 2019): tokens i64 [N, T] -> logits [N, T, vocabulary], each from
 * the tokens up to its own. Parameters have the names and shapes of the published safetensors file,
 * and the default dtype.
 */
#ifndef EXAMPLES_GPT2_H
#define EXAMPLES_GPT2_H

#include <trireme/nn.h>

typedef struct gpt_options {
    int64_t layers, width, heads; /* of the smallest published one: 12, 768, 12 */
    int64_t context, vocabulary;  /* 1024, 50257; T is at most context */
    double dropout;
} gpt_options;

tri_module *gpt_create(const gpt_options *opt);

/* For tri_load: drops "transformer." and what is no parameter (masks of attention) or is there
 * twice (the head, which is wte). */
const char *gpt_rename(const char *name, char *room, void *arg);

#endif
