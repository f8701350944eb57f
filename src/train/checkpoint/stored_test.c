/* stored_test.c - checkpoints in pieces that are damaged, and manifests that somebody has made. */
#include "base/err.h"
#include "testing/divided_state.h"
#include "testing/ranks.h"
#include "testing/scratch.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/format.h"
#include "train/checkpoint/json.h"

#define DIR_2 "step-000000000002/"

static const char *save_rank(rank_env *env)
{
    const char *folder = env->arg;
    tri_module *net = tri_nn_linear(3, 2, NULL);
    divided_state s;
    tri_group *group;

    RANK_TRY(env, tri_group_create(env->store, env->rank, env->size, env->options, &group));
    for (int round = 1; round <= 2; round++) {
        tri_checkpoint_info info = {.step = round, .extras = &s.extra, .n_extras = 1};

        divided_begin(&s, group, env->rank, env->size, DIVIDED_UNEVENLY);
        RANK_TRY(env, divided_fill(&s, round));
        RANK_TRY(env, tri_checkpoint_save(folder, net, NULL, &info, NULL));
        divided_end(&s);
    }
    tri_module_destroy(net);
    tri_group_unref(group);
    return NULL;
}

/* The step of the newest whole one, which has the contents that it had; *why: what is said of the
 * newest. */
static int64_t newest(scratch *s, char why[TRII_ERR_BYTES])
{
    tri_checkpoint *checkpoint;
    divided_state d;
    int64_t step;

    why[0] = '\0';
    if (tri_checkpoint_open(scratch_path(s, DIR_2), &checkpoint) != TRI_OK)
        snprintf(why, TRII_ERR_BYTES, "%s", tri_last_error());
    else
        tri_checkpoint_close(checkpoint);
    CHECK_OK(tri_checkpoint_open(s->dir, &checkpoint));
    step = tri_checkpoint_step(checkpoint);
    divided_begin(&d, NULL, 0, 1, DIVIDED_NOT);
    CHECK_OK(tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, DIVIDED_TENSORS));
    assert_null(divided_differs(&d, (int)step));
    divided_end(&d);
    tri_checkpoint_close(checkpoint);
    return step;
}

/* Any byte of any file, and any length: the one before is taken. */
static void damage_is_found_and_named(void **state)
{
    static const char *const files[] = {
        DIR_2 "manifest.json", DIR_2 "pieces.rank0.safetensors", DIR_2 "pieces.rank1.safetensors",
        DIR_2 "pieces.rank2.safetensors", DIR_2 "divided.safetensors"};
    char why[TRII_ERR_BYTES];
    uint64_t random = 5;
    int n_named = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(3, NULL, save_rank, s.dir);
    assert_int_equal(newest(&s, why), 2);
    for (int round = 0; round < (TEST_SANITIZED ? 60 : 250); round++) {
        const char *file = files[round % 5], *base = strrchr(file, '/') + 1;
        size_t n, at;
        char *bytes = scratch_read(scratch_path(&s, file), &n);

        at = scratch_random(&random) % n;
        bytes[at] = (char)(bytes[at] ^ 4);
        scratch_file(&s, file, bytes, round / 5 % 4 == 0 ? at : n);
        /* White space at the manifest's end is no damage. */
        if (!(round % 5 == 0 && at == n - 1)) {
            assert_int_equal(newest(&s, why), 1);
            assert_non_null(strstr(why, base));
            n_named += strstr(why, ": damaged: the checksum of tensor divided/") != NULL;
        }
        bytes[at] = (char)(bytes[at] ^ 4);
        scratch_file(&s, file, bytes, n);
        free(bytes);
    }
    assert_true(n_named > 5);
    for (int i = 0; i < 5; i++) {
        size_t n;
        char *bytes = scratch_read(scratch_path(&s, files[i]), &n);

        assert_int_equal(unlink(scratch_path(&s, files[i])), 0);
        assert_int_equal(newest(&s, why), 1);
        if (i > 0) /* without a manifest it is no checkpoint */
            assert_non_null(strstr(why, strrchr(files[i], '/') + 1));
        scratch_file(&s, files[i], bytes, n);
        free(bytes);
    }
    assert_int_equal(newest(&s, why), 2);
    scratch_end(&s);
}

/* --- manifests that were made --------------------------------------------- */

static json_t *read_manifest(scratch *s)
{
    size_t n;
    char *text = scratch_read(scratch_path(s, DIR_2 "manifest.json"), &n);
    json_t *root = json_loadb(text, n, 0, NULL);

    assert_non_null(root);
    free(text);
    return root;
}

/* With a checksum that is right. */
static void write_manifest(scratch *s, json_t *root)
{
    char *text;

    (void)json_object_del(root, "xxh3");
    text = trii_json_text(root);
    assert_true(
        trii_json_put(root, "xxh3", trii_manifest_hex(trii_checksum_of(text, strlen(text)))));
    trii_free(text);
    text = trii_json_text(root);
    scratch_file(s, DIR_2 "manifest.json", text, strlen(text));
    trii_free(text);
}

static json_t *tensor_named(json_t *root, const char *name)
{
    json_t *tensors = json_object_get(root, "tensors");

    for (size_t i = 0; i < json_array_size(tensors); i++) {
        json_t *t = json_array_get(tensors, i);

        if (strcmp(json_string_value(json_object_get(t, "name")), name) == 0)
            return t;
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* What is put in the place of one value: of a tensor, or of its first piece. */
static void what_no_rank_writes_is_refused(void **state)
{
    static const struct {
        const char *tensor;
        bool in_piece;
        const char *key, *value; /* JSON; NULL: taken away */
        const char *line;
    } cases[] = {
        {"matrix", true, "file", "\"none.safetensors\"", "in none.safetensors, which its parts"},
        {"matrix", true, "file", "\"../manifest.json\"", "which its parts do not list"},
        {"matrix", true, "file", NULL, "in (none)"},
        {"matrix", true, "file", "7", "in (none)"},
        {"matrix", true, "at", "-1", "without offset, size, at"},
        {"matrix", true, "at", NULL, "without offset, size, at"},
        {"matrix", true, "at", "1e3", "without offset, size, at"},
        {"matrix", true, "at", "9223372036854775807", "from byte 9223372036854775807 on"},
        {"matrix", true, "at", "100000", "does not lie in the"},
        {"matrix", true, "xxh3", "\"0\"", "without offset, size, at or xxh3"},
        {"matrix", true, "offset", "[-1]", "without offset"},
        {"matrix", true, "offset", "[1]", "tensor divided/matrix: "},
        {"matrix", true, "offset", "[9223372036854775807]", "lies outside of its shape"},
        {"matrix", true, "offset", "[0, 0]", "without offset, size"},
        {"matrix", true, "offset", "[]", "without offset, size"},
        {"matrix", true, "offset", "3", "without offset, size"},
        {"matrix", true, "offset", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]", "without offset"},
        {"matrix", true, "size", "[0]", "lies outside of its shape"},
        {"matrix", true, "size", "[1]", "no piece has elements 1 to "},
        {"matrix", true, "size", "[40]", "tensor divided/matrix: "},
        {"matrix", true, "size", "[9223372036854775807]", "lies outside of its shape"},
        {"matrix", true, "size", "[[1]]", "without offset, size"},
        {"matrix", false, "shape", "[5, 9]", "no piece has elements 40 to 44 of 45"},
        {"matrix", false, "shape", "[4, 8]", "lies outside of its shape"},
        {"matrix", false, "shape", "[-5, -8]", "no shape"},
        {"matrix", false, "shape", "[9223372036854775807, 9223372036854775807]", "no shape"},
        {"matrix", false, "shape", "[0, 9223372036854775807, 9223372036854775807]", "no shape"},
        {"matrix", false, "shape", "[9223372036854775807]", "no piece has elements 40 to 92233"},
        {"matrix", false, "shape", NULL, "no shape"},
        {"matrix", false, "dtype", "\"f33\"", "unknown dtype f33"},
        {"matrix", false, "dtype", "\"f64\"", "tensor divided/"},
        {"matrix", false, "dtype", NULL, "unknown dtype (none)"},
        {"matrix", false, "pieces", "[]", "no piece has elements 0 to 39 of 40"},
        {"matrix", false, "pieces", "{}", "no list of pieces"},
        {"matrix", false, "pieces", "[7]", "in (none)"},
        {"matrix", false, "name", "\"matrix\"", "not named PART/NAME"},
        {"matrix", false, "name", "\"divided/one\"", "divided/one occurs twice"},
        {"nothing", false, "shape", "[1, 4]", "no piece has elements 0 to 3 of 4"},
    };
    char why[TRII_ERR_BYTES];
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(3, NULL, save_rank, s.dir);
    for (size_t i = 0; i < TRII_COUNT_OF(cases); i++) {
        json_t *root = read_manifest(&s), *whole = json_deep_copy(root), *object;
        char name[64];

        snprintf(name, sizeof(name), "divided/%s", cases[i].tensor);
        object = tensor_named(root, name);
        if (cases[i].in_piece)
            object = json_array_get(json_object_get(object, "pieces"), 0);
        if (cases[i].value != NULL)
            assert_int_equal(json_object_set_new(object, cases[i].key,
                                                 json_loads(cases[i].value, JSON_DECODE_ANY, NULL)),
                             0);
        else
            assert_int_equal(json_object_del(object, cases[i].key), 0);
        write_manifest(&s, root);
        assert_int_equal(newest(&s, why), 1);
        if (strstr(why, cases[i].line) == NULL)
            fail_msg("%s %s: %s", cases[i].key, cases[i].value, why);
        write_manifest(&s, whole);
        json_decref(root);
        json_decref(whole);
    }
    assert_int_equal(newest(&s, why), 2);
    scratch_end(&s);
}

/* A number of a list, or the list. */
static void spoil(json_t *value, uint64_t *random)
{
    static const int64_t numbers[] = {
        0, 1, -1, 2, 7, INT64_MAX, INT64_MIN, UINT32_MAX, INT64_MAX - 7, 40};
    size_t n = json_is_array(value) ? json_array_size(value) : json_object_size(value);
    size_t at = n > 0 ? scratch_random(random) % n : 0;
    json_t *child, *number = json_integer(numbers[scratch_random(random) % 10]);
    void *it = json_object_iter(value);

    for (size_t i = 0; json_is_object(value) && i < at; i++)
        it = json_object_iter_next(value, it);
    child = json_is_array(value) ? json_array_get(value, at)
            : it != NULL         ? json_object_iter_value(it)
                                 : NULL;
    if (n > 0 && (json_is_array(child) || json_is_object(child)) && scratch_random(random) % 8 > 0)
        spoil(child, random);
    else if (json_is_array(value))
        (void)(n == 0 || scratch_random(random) % 4 == 0 ? json_array_append(value, number)
                                                         : json_array_set(value, at, number));
    else if (it != NULL && !json_is_string(child))
        (void)json_object_iter_set(value, it, number);
    json_decref(number);
}

/* Whatever is in the list, nothing outside of the files is read: the sanitizers see to that. */
static void random_lists_do_no_harm(void **state)
{
    char why[TRII_ERR_BYTES];
    uint64_t random = 6;
    int refused = 0;
    scratch s;

    (void)state;
    scratch_begin(&s);
    run_threads(3, NULL, save_rank, s.dir);
    for (int round = 0; round < (TEST_SANITIZED ? 300 : 1500); round++) {
        json_t *root = read_manifest(&s), *whole = json_deep_copy(root);
        tri_checkpoint *checkpoint = NULL;

        for (uint32_t k = 0; k <= scratch_random(&random) % 3; k++)
            spoil(json_object_get(root, "tensors"), &random);
        write_manifest(&s, root);
        if (tri_checkpoint_open(scratch_path(&s, DIR_2), &checkpoint) != TRI_OK) {
            refused++;
        } else {
            divided_state d;

            divided_begin(&d, NULL, 0, 1, DIVIDED_NOT);
            (void)!tri_checkpoint_restore_extra(checkpoint, "divided", d.entries, DIVIDED_TENSORS);
            divided_end(&d);
            tri_checkpoint_close(checkpoint);
        }
        write_manifest(&s, whole);
        json_decref(root);
        json_decref(whole);
    }
    assert_true(refused > 100);
    assert_int_equal(newest(&s, why), 2);
    scratch_end(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(damage_is_found_and_named),
    cmocka_unit_test(what_no_rank_writes_is_refused),
    cmocka_unit_test(random_lists_do_no_harm),
};
TEST_MAIN(tests)
