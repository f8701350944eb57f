/*
 * fuzz_test.c - every parser of what others send: its corpus, each file of it cut after every
 * byte, and some thousand mutations. fuzz_full_test.c has a million.
 */
#include "fuzz/targets.h"

static void store_requests_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&requests_target);
    fuzz_mutations(&requests_target, 20000);
}

static void the_state_of_a_rendezvous_takes_anything(void **state)
{
    (void)state;
    fuzz_corpus(&rendezvous_target);
    fuzz_mutations(&rendezvous_target, 20000);
}

static void the_store_server_takes_anything(void **state)
{
    (void)state;
    fuzz_mutations(&server_target, 1000);
}

static void store_files_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&records_target);
    fuzz_mutations(&records_target, 20000);
}

static void handshakes_let_nobody_in_by_luck(void **state)
{
    (void)state;
    fuzz_corpus(&handshake_target);
    fuzz_mutations(&handshake_target, 10000);
}

static void frames_of_agents_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&agent_frames_target);
    fuzz_mutations(&agent_frames_target, 30000);
}

static void tcp_frames_take_anything(void **state)
{
    (void)state;
    fuzz_whole(&frames_target);
    fuzz_mutations(&frames_target, 200);
}

static void safetensors_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&safetensors_target);
    fuzz_mutations(&safetensors_target, 5000);
}

static void torch_files_take_anything(void **state)
{
    (void)state;
    quiet();
    fuzz_corpus(&torch_files_target);
    fuzz_mutations(&torch_files_target, 5000);
}

static void idx_files_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&idx_target);
    fuzz_mutations(&idx_target, 2000);
}

static void images_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&images_target);
    fuzz_mutations(&images_target, TEST_SANITIZED ? 2000 : 5000);
}

static void event_files_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&events_target);
    fuzz_mutations(&events_target, 20000);
}

static void tables_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&csv_target);
    fuzz_mutations(&csv_target, 20000);
}

static void configurations_take_anything(void **state)
{
    (void)state;
    fuzz_corpus(&deepspeed_target);
    fuzz_mutations(&deepspeed_target, 10000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(store_requests_take_anything),
    cmocka_unit_test(the_state_of_a_rendezvous_takes_anything),
    cmocka_unit_test(the_store_server_takes_anything),
    cmocka_unit_test(store_files_take_anything),
    cmocka_unit_test(handshakes_let_nobody_in_by_luck),
    cmocka_unit_test(frames_of_agents_take_anything),
    cmocka_unit_test(tcp_frames_take_anything),
    cmocka_unit_test(safetensors_take_anything),
    cmocka_unit_test(torch_files_take_anything),
    cmocka_unit_test(idx_files_take_anything),
    cmocka_unit_test(event_files_take_anything),
    cmocka_unit_test(tables_take_anything),
    cmocka_unit_test(images_take_anything),
    cmocka_unit_test(configurations_take_anything),
};

TEST_MAIN(tests)
