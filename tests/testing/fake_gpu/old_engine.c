/*
 * old_engine.c - a plug-in of ABI 8, whose table had a bool where later ones have functions: what a
 * library finds there is no function.
 */
#include <stdint.h>

static const struct {
    uint32_t abi, size;
    const char *name;
    uint32_t kinds;
    uint8_t to_self, on_device;
    void *functions[16];
} engine = {.abi = 8, .size = sizeof(engine), .name = "old", .functions = {(void *)1}};

__attribute__((visibility("default"))) const void *trii_engine_open(const void *host);

const void *trii_engine_open(const void *host)
{
    (void)host;
    return &engine;
}
