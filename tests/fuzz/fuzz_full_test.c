/*
 * fuzz_full_test.c - a million mutations for every parser that is a function, and as many as a
 * minute takes where each needs connections. They are the same in every build, and what a parser
 * does wrong AddressSanitizer sees best: other builds get the first fifth.
 */
/* ctest: labels=full timeout=600 */
#include "base/compiler.h"
#include "fuzz/targets.h"

#define MILLION (TRII_ASAN ? 1000000 : 200000)

static void a_million_store_requests(void **state)
{
    (void)state;
    fuzz_mutations(&requests_target, MILLION);
}

static void a_million_states_of_a_rendezvous(void **state)
{
    (void)state;
    fuzz_mutations(&rendezvous_target, MILLION);
}

static void a_million_store_files(void **state)
{
    (void)state;
    fuzz_mutations(&records_target, MILLION);
}

static void a_million_handshakes(void **state)
{
    (void)state;
    fuzz_mutations(&handshake_target, MILLION);
}

static void a_million_frames_of_agents(void **state)
{
    (void)state;
    fuzz_mutations(&agent_frames_target, MILLION);
}

static void a_million_safetensors(void **state)
{
    (void)state;
    fuzz_mutations(&safetensors_target, MILLION);
}

static void a_million_torch_files(void **state)
{
    (void)state;
    quiet();
    fuzz_mutations(&torch_files_target, MILLION);
}

static void a_quarter_of_a_million_idx_files(void **state)
{
    (void)state;
    fuzz_mutations(&idx_target, MILLION / 4);
}

static void a_tenth_of_a_million_images(void **state)
{
    (void)state;
    fuzz_mutations(&images_target, MILLION / 10);
}

static void a_million_event_files(void **state)
{
    (void)state;
    fuzz_mutations(&events_target, MILLION);
}

static void a_million_tables(void **state)
{
    (void)state;
    fuzz_mutations(&csv_target, MILLION);
}

static void a_million_configurations(void **state)
{
    (void)state;
    fuzz_mutations(&deepspeed_target, MILLION);
}

static void many_clients_of_the_store_server(void **state)
{
    (void)state;
    fuzz_mutations(&server_target, MILLION / 5);
}

static void many_rogue_ranks(void **state)
{
    (void)state;
    fuzz_mutations(&frames_target, 20000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_million_store_requests),
    cmocka_unit_test(a_million_states_of_a_rendezvous),
    cmocka_unit_test(a_million_store_files),
    cmocka_unit_test(a_million_handshakes),
    cmocka_unit_test(a_million_frames_of_agents),
    cmocka_unit_test(a_million_safetensors),
    cmocka_unit_test(a_million_torch_files),
    cmocka_unit_test(a_quarter_of_a_million_idx_files),
    cmocka_unit_test(a_tenth_of_a_million_images),
    cmocka_unit_test(a_million_event_files),
    cmocka_unit_test(a_million_tables),
    cmocka_unit_test(a_million_configurations),
    cmocka_unit_test(many_clients_of_the_store_server),
    cmocka_unit_test(many_rogue_ranks),
};

TEST_MAIN(tests)
