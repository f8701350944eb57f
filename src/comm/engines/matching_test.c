/*
 * matching_test.c - tables by tag: the oldest of a tag is found, however many there are.
 */
#include "testing/check.h"

#include "base/alloc.h"
#include "comm/engines/matching.h"
#include "comm/group/composite.h"

enum { N = 5000, TAGS = 700 };

typedef struct item {
    trii_tagged tagged;
    int number;
} item;

static item items[N];

static void add_all(trii_tags *tags)
{
    for (int i = 0; i < N; i++) {
        items[i] = (item){.tagged.tag = (uint64_t)(i * 31 % TAGS), .number = i};
        trii_tags_add(tags, &items[i].tagged);
    }
    assert_int_equal(tags->count, N);
}

/* Without memory for more chains it is slower, and no more. */
static void the_oldest_of_a_tag_is_found(void **state)
{
    (void)state;
    for (int poor = 0; poor < 2; poor++) {
        trii_tags tags = {0};

        trii_alloc_fail_at(poor ? 1 : 0);
        add_all(&tags);
        trii_alloc_fail_at(0);
        assert_null(trii_tags_find(&tags, TAGS));
        for (int tag = TAGS - 1; tag >= 0; tag--) {
            int last = -1;
            trii_tagged *one;

            while ((one = trii_tags_find(&tags, (uint64_t)tag)) != NULL) {
                const trii_tagged *next = trii_tags_next(one);

                assert_int_equal(one->tag, tag);
                assert_true(((item *)one)->number > last);
                last = ((item *)one)->number;
                trii_tags_remove(&tags, one);
                assert_ptr_equal(trii_tags_find(&tags, (uint64_t)tag), next);
            }
            assert_true(last >= N - TAGS);
        }
        assert_int_equal(tags.count, 0);
        assert_null(trii_tags_walk(&tags, NULL));
        trii_tags_clear(&tags);
    }
    assert_int_equal(trii_alloc_live(), 0);
}

static void a_walk_sees_each_once(void **state)
{
    static unsigned char seen[N];
    trii_tags tags = {0};
    int n = 0;

    (void)state;
    add_all(&tags);
    for (trii_tagged *one = trii_tags_walk(&tags, NULL); one != NULL;
         one = trii_tags_walk(&tags, one), n++)
        assert_int_equal(seen[((item *)one)->number]++, 0);
    assert_int_equal(n, N);
    trii_tags_clear(&tags);
    assert_int_equal(trii_alloc_live(), 0);
}

/* Of receives from a rank and from any rank the one that was posted first; one that another engine
 * has won is passed over. */
static void the_receive_posted_first_takes_the_message(void **state)
{
    static trii_op ops[4];
    trii_tags own = {0}, any = {0};
    atomic_int won = 1;

    (void)state;
    for (int i = 0; i < 4; i++)
        trii_op_init(&ops[i],
                     &(trii_collective){.kind = i % 2 ? TRII_KIND_RECV_ANY : TRII_KIND_RECV,
                                        .tag = -3,
                                        .root = i % 2 ? -1 : 5});
    ops[1].won = &won;
    trii_recv_wait(&own, &ops[2], 2);
    trii_recv_wait(&any, &ops[1], 1);
    trii_recv_wait(&any, &ops[3], 3);
    trii_recv_wait(&own, &ops[0], 4);
    assert_null(trii_recv_take(&own, &any, 3, 5));
    assert_ptr_equal(trii_recv_take(&own, &any, trii_tag_of(&ops[0].call), 5), &ops[2]);
    assert_ptr_equal(trii_recv_take(&own, &any, trii_tag_of(&ops[0].call), 5), &ops[3]);
    assert_int_equal(ops[3].peer, 5);
    assert_ptr_equal(trii_recv_take(&own, &any, trii_tag_of(&ops[0].call), 5), &ops[0]);
    assert_null(trii_recv_take(&own, &any, trii_tag_of(&ops[0].call), 5));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_oldest_of_a_tag_is_found),
    cmocka_unit_test(a_walk_sees_each_once),
    cmocka_unit_test(the_receive_posted_first_takes_the_message),
};

TEST_MAIN(tests)
