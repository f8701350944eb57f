#!/bin/sh
# grown_test.sh - programs of a later version, whose structs have one more field in the place of a
# reserved word, with the libraries as they are: the same output while the field is 0, and a refusal
# that names the struct as soon as it is set. With scripts/check_abi (places and sizes stay) this is
# what keeps old programs and new libraries together, too.
# ctest: labels=full timeout=120
set -eu
LC_ALL=C
export LC_ALL
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-grown.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
lib=$(dirname "$TRI_TEST_BIN")/lib

fail() {
    echo "grown_test: $*" >&2
    exit 1
}

cp -R "$TRI_TEST_SOURCE/include" "$work/grown"
sed 's/^#define TRI_RESERVED(n) .*/#define TRI_RESERVED(n) uint64_t later_field; uint64_t reserved[(n) - 1]/' \
    "$TRI_TEST_SOURCE/include/trireme/export.h" >"$work/grown/trireme/export.h"
grep -q later_field "$work/grown/trireme/export.h" || fail "TRI_RESERVED is not defined as this test knows it"

# compile SOURCE HEADERS PROGRAM
compile() {
    ${CC:-cc} -std=gnu17 ${TRI_TEST_SANITIZE:+-fsanitize=$TRI_TEST_SANITIZE} -I"$2" "$1" -o "$3" \
        -L"$lib" -ltrireme-models -ltrireme -ltrireme-comm -lm -Wl,-rpath,"$lib" || fail "$1 does not compile"
}

# Options, classes of functions and data sets, samplers, transforms, batches, reducers, models.
for example in custom_function toy_ddp plain_mlp tutorials/data_tutorial; do
    compile "$TRI_TEST_SOURCE/examples/$example.c" "$TRI_TEST_SOURCE/include" "$work/now"
    compile "$TRI_TEST_SOURCE/examples/$example.c" "$work/grown" "$work/later"
    for program in now later; do
        "$work/$program" >"$work/$program.out" 2>&1 || fail "$example, $program: $(cat "$work/$program.out")"
    done
    cmp -s "$work/now.out" "$work/later.out" || fail "$example prints something else: $(diff "$work/now.out" "$work/later.out")"
done

cat >"$work/refused.c" <<'END'
#include <trireme/trireme.h>

#include <string.h>

static tri_status draw(tri_sampler *self, int64_t epoch, int64_t *indices)
{
    (void)epoch;
    for (int64_t i = 0; i < self->length; i++)
        indices[i] = i;
    return TRI_OK;
}

static void refused(const char *name, tri_status status)
{
    if (status != TRI_ERR_INVALID_ARG || strstr(tri_last_error(), name) == NULL) {
        printf("%s: %s, %s\n", name, tri_status_name(status), tri_last_error());
        exit(1);
    }
}

int main(void)
{
    static const tri_sampler_class cls = {.name = "later", .draw = draw, .later_field = 1};
    tri_sampler sampler = {.cls = &cls, .length = 3};
    tri_module *net = tri_nn_linear(2, 2, &(tri_nn_linear_options){.later_field = 1});

    refused("tri_nn_linear_options", tri_module_status(net));
    tri_module_destroy(net);
    refused("tri_init_options", tri_init(&(tri_init_options){.later_field = 1}));
    refused("tri_group_options", tri_init(&(tri_init_options){.group = {.later_field = 1}}));
    refused("tri_sampler_class", tri_sampler_set_epoch(&sampler, 0));
    return 0;
}
END
compile "$work/refused.c" "$work/grown" "$work/refused"
"$work/refused" || fail "a field that these libraries do not know was not refused"
