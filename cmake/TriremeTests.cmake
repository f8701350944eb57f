# Tests share the cores: threads that spin for the next loop keep other tests from running.
set(TRI_TEST_ENVIRONMENT "OMP_WAIT_POLICY=passive")
# A failed allocation must come back as NULL, as without a sanitizer: tests ask for too much.
# ThreadSanitizer keeps a process that ends alive, so that its threads can show a race with its end:
# for a second, if they are not told otherwise, in each of some thousand processes.
if(TRI_SANITIZE)
    # It names functions and lines in reports of clang's sanitizers; either of these can.
    find_program(SYMBOLIZER NAMES llvm-symbolizer addr2line)
    list(APPEND TRI_TEST_ENVIRONMENT
        "ASAN_OPTIONS=allocator_may_return_null=1;LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0;UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=external_symbolizer_path=${SYMBOLIZER}:suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp:allocator_may_return_null=1:die_after_fork=0:atexit_sleep_ms=100")
endif()

# One ctest entry per x_test.c, whose cases run in a process of their own each, with a deadline of its
# own, so that a hang or a crash costs one case (tests/testing/cases.h). test/cases.txt lists the cases
# of each entry, as read from the source (every `cmocka_unit_test*(name`), and the entry leaves what
# became of them in test/results/ENTRY: `./run test` compares the two. A line of the file may say
#   /* ctest: labels=full timeout=120 also=TRI_CHECK=order */
# (default: labels=quick timeout=60); a file of nothing but scripts is not used.
#   timeout=SECONDS  of each case
#   also=NAME=VALUE  there is one more entry for all of it, with this variable; more than once: one each
#   program=own      it defines a function of the C library, for its own tests to call
#   threads=none     it fails where it starts one
#   tsan=no          left out where ThreadSanitizer is built for: it shows there, of threads and of what
#                    that compiler makes, no more than other files do
#   tsan=CASE        of its cases only this one is left there
# What waits for processes and wires more than it computes has the label "processes" too.

# tri_read_test_header(FILE): sets labels and timeout by the line above.
function(tri_read_test_header source)
    set(labels quick)
    set(timeout 60)
    file(STRINGS ${source} header REGEX "ctest:")
    if(header MATCHES "labels=([a-z;]+)")
        set(labels ${CMAKE_MATCH_1})
    endif()
    if(source MATCHES "/tests/(multiproc|net|plugins/(etcd|metrics))")
        list(APPEND labels processes)
    endif()
    unset(without_threads PARENT_SCOPE)
    if(header MATCHES "threads=none")
        set(without_threads TRUE PARENT_SCOPE)
    endif()
    unset(without_tsan PARENT_SCOPE)
    unset(tsan_case PARENT_SCOPE)
    if(header MATCHES "tsan=([a-z0-9_]+)" AND NOT CMAKE_MATCH_1 STREQUAL "no")
        set(tsan_case ${CMAKE_MATCH_1} PARENT_SCOPE)
    elseif(header MATCHES "tsan=no")
        set(without_tsan TRUE PARENT_SCOPE)
    endif()
    unset(own_program PARENT_SCOPE)
    if(header MATCHES "program=own")
        set(own_program TRUE PARENT_SCOPE)
    endif()
    string(REGEX MATCHALL "also=[A-Z_]+=[a-z0-9]+" entries "${header}")
    list(TRANSFORM entries REPLACE "^also=" "")
    set(also ${entries} PARENT_SCOPE)
    if(header MATCHES "timeout=([0-9]+)")
        set(timeout ${CMAKE_MATCH_1})
    endif()
    set(cost 0)
    if(header MATCHES "start=first")
        set(cost 1000)
    endif()
    set(cost ${cost} PARENT_SCOPE)
    if(TRI_SANITIZE)
        math(EXPR timeout "${timeout} * 5")
    endif()
    set(labels ${labels} PARENT_SCOPE)
    set(timeout ${timeout} PARENT_SCOPE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
endfunction()

function(tri_add_test_script source)
    get_filename_component(name ${source} NAME_WE)
    tri_read_test_header(${source})
    if(without_tsan AND TRI_SANITIZE MATCHES thread)
        return()
    endif()
    add_test(NAME ${name} COMMAND ${source})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} COST ${cost} LABELS "${labels}"
        ENVIRONMENT "TRI_TEST_BIN=${CMAKE_BINARY_DIR}/bin;TRI_TEST_SOURCE=${CMAKE_SOURCE_DIR};TRI_TEST_SANITIZE=${TRI_SANITIZE};TRI_TEST_BUILD_TYPE=${CMAKE_BUILD_TYPE};CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER};${TRI_TEST_ENVIRONMENT}")
endfunction()

# tri_test_file(FILE): it becomes part of the program of its room or of its folder of tests/, and
# test/x_test is another name of that: a program for each would take longer to link than to compile.
# Files that say threads=none share one, in which no thread can start.
function(tri_test_file source)
    get_filename_component(name ${source} NAME_WE)
    tri_read_test_header(${source})
    string(REGEX REPLACE "^${CMAKE_SOURCE_DIR}/(src/comm|src/train|[a-z]+)/([a-z_]+)/.*" "\\2" program ${source})
    if(own_program)
        set(program ${name})
    elseif(without_threads)
        set(program threadless)
    endif()
    set_property(GLOBAL APPEND PROPERTY tri_program_${program} ${source})
    get_property(programs GLOBAL PROPERTY tri_programs)
    if(NOT program IN_LIST programs)
        set_property(GLOBAL APPEND PROPERTY tri_programs ${program})
    endif()
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS main=${name}_main)
    if("full" IN_LIST labels) # long because they compute much
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
    endif()
    file(STRINGS ${source} own_main REGEX "^int main\\(")
    if(own_main)
        set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -Wno-missing-prototypes)
    endif()
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/test/${name} DEPENDS tests_${program}
        COMMAND ln -f $<TARGET_FILE:tests_${program}> ${CMAKE_BINARY_DIR}/test/${name} VERBATIM)
    add_custom_target(${name} ALL DEPENDS ${CMAKE_BINARY_DIR}/test/${name})
    set(program ${program} PARENT_SCOPE)
endfunction()

# tri_add_test_programs(): builds what tri_test_file() has collected.
function(tri_add_test_programs)
    get_property(programs GLOBAL PROPERTY tri_programs)
    foreach(program IN LISTS programs)
        get_property(sources GLOBAL PROPERTY tri_program_${program})
        set(list)
        foreach(source IN LISTS sources)
            get_filename_component(name ${source} NAME_WE)
            string(APPEND list "TEST_FILE(${name})\n")
        endforeach()
        file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test/programs/${program}.h CONTENT "${list}")
        set(target tests_${program})
        add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/testing/program/test_program.c ${sources})
        set_target_properties(${target} PROPERTIES OUTPUT_NAME ${program}
            RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/programs)
        target_link_libraries(${target} PRIVATE trireme_flags test_support
            trireme_testing PkgConfig::CMOCKA)
        if(program STREQUAL plugins)
            target_link_libraries(${target} PRIVATE fake_gpu)
            if(TARGET etcd_testing)
                target_link_libraries(${target} PRIVATE etcd_testing)
            endif()
        endif()
        target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests
            ${CMAKE_BINARY_DIR}/test/programs)
        target_compile_definitions(${target} PRIVATE TEST_FILES="${program}.h")
        list(GET sources 0 first)
        tri_read_test_header(${first})
        if(without_threads) # so none of the others does
            target_compile_definitions(${target} PRIVATE TEST_WITHOUT_THREADS)
        endif()
        # What is tested is optimised in full; tests themselves would be half of the compiler's time.
        target_compile_options(${target} PRIVATE -O0)
        if(TRI_SANITIZE MATCHES undefined)
            target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
        endif()
    endforeach()
endfunction()

# tri_register_cases(FILE ENTRY VARIABLES): the entry, with variables of its own.
function(tri_register_cases source entry variables)
    get_filename_component(name ${source} NAME_WE)
    tri_read_test_header(${source})
    file(STRINGS ${source} cases REGEX "cmocka_unit_test[a-z_]*\\([a-z]")
    string(REGEX MATCHALL "cmocka_unit_test[a-z_]*\\([a-z0-9_]+" cases "${cases}")
    list(TRANSFORM cases REPLACE ".*\\(" "")
    if(TRI_SANITIZE MATCHES thread AND tsan_case)
        if(NOT tsan_case IN_LIST cases)
            message(FATAL_ERROR "${source}: ${tsan_case}, which it says of tsan, is none of its cases")
        endif()
        set(cases ${tsan_case})
        list(APPEND variables TRI_TEST_ONLY=${tsan_case})
    endif()
    list(LENGTH cases n_cases)
    foreach(case IN LISTS cases)
        set_property(GLOBAL APPEND_STRING PROPERTY tri_cases "${entry} ${case}\n")
    endforeach()
    add_test(NAME ${entry} COMMAND ${CMAKE_BINARY_DIR}/test/${name})
    set(at_once 1)
    if("processes" IN_LIST labels) # they wait for each other more than they compute
        set(at_once 3)
        set_tests_properties(${entry} PROPERTIES PROCESSORS 2)
    endif()
    # The file ends what takes too long itself; this is for when it does not. What says start=first, and
    # then what has the most cases, starts first, so that it does not run alone in the end.
    math(EXPR whole_timeout "${timeout} * ${n_cases} + 60")
    math(EXPR cost "${cost} + ${n_cases}")
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${whole_timeout} COST ${cost} LABELS "${labels}"
        ENVIRONMENT "TRI_TEST_BIN=${CMAKE_BINARY_DIR}/bin;TRI_TEST_SOURCE=${CMAKE_SOURCE_DIR};TRI_TEST_DEADLINE=${timeout};TRI_TEST_AT_ONCE=${at_once};TRI_TEST_RESULTS=${CMAKE_BINARY_DIR}/test/results/${entry};${variables};${TRI_TEST_ENVIRONMENT}")
endfunction()

function(tri_add_test_file source)
    get_filename_component(name ${source} NAME_WE)
    tri_read_test_header(${source})
    if(without_tsan AND TRI_SANITIZE MATCHES thread)
        return()
    endif()
    tri_test_file(${source})
    tri_register_cases(${source} ${name} "")
    foreach(variable IN LISTS also)
        tri_register_cases(${source} ${name}.${variable} "${variable}")
    endforeach()
endfunction()

function(tri_add_tests)
    # What tests share: tests/testing/*.c.
    file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/testing/*.c)
    list(FILTER support EXCLUDE REGEX "_test\\.c$")
    add_library(test_support STATIC ${support})
    target_link_libraries(test_support PRIVATE trireme_flags PkgConfig::CMOCKA)
    target_include_directories(test_support PRIVATE ${CMAKE_SOURCE_DIR}/tests
        ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS
        ${CMAKE_SOURCE_DIR}/src/*_test.c ${CMAKE_SOURCE_DIR}/tests/*_test.c
        ${CMAKE_SOURCE_DIR}/tools/*_test.c)
    # What programs load first, so that their system calls fail. Sanitizers want to be first.
    if(TRI_SANITIZE)
        list(FILTER tests EXCLUDE REGEX "/failing_calls_test")
    else()
        add_library(failing_calls MODULE ${CMAKE_SOURCE_DIR}/tests/preload/failing_calls.c)
        set_target_properties(failing_calls PROPERTIES PREFIX ""
            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
        target_link_libraries(failing_calls PRIVATE trireme_flags)
    endif()
    # What ./run bits holds against the same program of another revision.
    add_executable(bits ${CMAKE_SOURCE_DIR}/tests/bits/bits.c)
    set_target_properties(bits PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
    target_link_libraries(bits PRIVATE trireme_flags test_support trireme_testing PkgConfig::CMOCKA)
    target_include_directories(bits PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    # Those of plug-ins are added where the plug-in is.
    list(FILTER tests EXCLUDE REGEX "/tests/plugins/")
    tri_add_plugin_tests()
    foreach(source IN LISTS tests)
        tri_add_test_file(${source})
    endforeach()
    tri_add_test_programs()
    get_property(cases GLOBAL PROPERTY tri_cases)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test/cases.txt CONTENT "${cases}")
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/test/results)
    # Calls of every public function, made from the headers.
    set(calls ${CMAKE_BINARY_DIR}/misuse_calls.c)
    set(make_calls ${CMAKE_SOURCE_DIR}/tests/misuse/make_calls.awk)
    file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/trireme/*.h)
    add_custom_command(OUTPUT ${calls} DEPENDS ${make_calls} ${headers}
        COMMAND awk -f ${make_calls} ${headers} >${calls})
    set_source_files_properties(${calls} PROPERTIES COMPILE_OPTIONS -w)
    file(GLOB values CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/misuse/*.c)
    list(FILTER values EXCLUDE REGEX "_test\\.c$")
    target_sources(tests_misuse PRIVATE ${calls} ${values})
    # What is tested from outside, by a script of POSIX sh: tests/DIR/x_test.sh, one entry each.
    file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/*_test.sh)
    foreach(script IN LISTS scripts)
        tri_add_test_script(${script})
    endforeach()
    # Checks of the tree itself: each script exits non-zero on a violation and
    # proves with --self-test that it catches a planted one.
    find_program(CLANG_FORMAT_PROGRAM clang-format-14)
    find_program(ABIDIFF_PROGRAM abidiff)
    file(GLOB checks CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/check_*)
    foreach(check IN LISTS checks)
        get_filename_component(name ${check} NAME)
        if(name STREQUAL check_format AND NOT CLANG_FORMAT_PROGRAM)
            message(STATUS "clang-format 14 was not found: the format is not checked")
            continue()
        endif()
        if(name STREQUAL check_abi AND NOT ABIDIFF_PROGRAM)
            message(STATUS "abidiff (abigail-tools) was not found: the recorded interface is not compared")
            continue()
        endif()
        add_test(NAME ${name} COMMAND ${check} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        add_test(NAME ${name}.self_test COMMAND ${check} --self-test
            WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${name} PROPERTIES LABELS "quick;tree")
        set_tests_properties(${name}.self_test PROPERTIES LABELS "full;tree")
        set_tests_properties(${name} ${name}.self_test PROPERTIES TIMEOUT 300
            ENVIRONMENT "TRI_BUILD=${CMAKE_BINARY_DIR};CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER}")
    endforeach()
endfunction()
