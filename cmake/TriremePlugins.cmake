# Plug-ins, plugins/NAME/: each is built where the library that it needs is found, into
# lib/trireme/NAME.so. They link nothing of this project (-z defs would show it); a table of functions, which
# they are given when they are loaded, says what they may use.

# tri_plugin(NAME SOURCE...)
function(tri_plugin name)
    add_library(${name} MODULE ${ARGN})
    set_target_properties(${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
        CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/trireme)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src
        ${CMAKE_SOURCE_DIR}/plugins)
    target_compile_definitions(${name} PRIVATE TRI_NO_SITES)
    target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--as-needed)
    target_link_libraries(${name} PRIVATE trireme_flags)
    install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme)
    set(TRI_PLUGINS ${TRI_PLUGINS} ${name} PARENT_SCOPE)
endfunction()

# tri_engine_plugin(NAME FOLDER): the engine NAME, from plugins/FOLDER.
function(tri_engine_plugin name folder)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/${folder}/*.c
        ${CMAKE_SOURCE_DIR}/plugins/${folder}/*.cc)
    tri_plugin(engine-${name} ${sources} ${CMAKE_SOURCE_DIR}/plugins/shared/moves.c)
    target_compile_definitions(engine-${name} PRIVATE TRII_PLUGIN_NAME="${name}")
    set(TRI_PLUGINS ${TRI_PLUGINS} PARENT_SCOPE)
endfunction()

set(TRI_PLUGINS)
# Their libraries are not made for sanitizers.
if(NOT TRI_SANITIZE)
    # One source for both; where both are installed Open MPI is "mpi" and MPICH "mpich".
    pkg_check_modules(OMPI QUIET ompi-c)
    pkg_check_modules(MPICH QUIET mpich)
    if(OMPI_FOUND)
        tri_engine_plugin(mpi engine-mpi)
        target_include_directories(engine-mpi SYSTEM PRIVATE ${OMPI_INCLUDE_DIRS})
        target_link_options(engine-mpi PRIVATE ${OMPI_LDFLAGS})
        target_link_libraries(engine-mpi PRIVATE ${OMPI_LINK_LIBRARIES})
    endif()
    if(MPICH_FOUND)
        set(mpich_name mpi)
        if(OMPI_FOUND)
            set(mpich_name mpich)
        endif()
        tri_engine_plugin(${mpich_name} engine-mpi)
        target_include_directories(engine-${mpich_name} SYSTEM PRIVATE ${MPICH_INCLUDE_DIRS})
        target_link_libraries(engine-${mpich_name} PRIVATE ${MPICH_LINK_LIBRARIES})
    endif()
endif()
if(NOT TRI_SANITIZE)
    find_path(GLOO_INCLUDE_DIR gloo/rendezvous/context.h)
    find_library(GLOO_LIBRARY gloo)
    if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
        tri_engine_plugin(gloo engine-gloo)
        target_include_directories(engine-gloo SYSTEM PRIVATE ${GLOO_INCLUDE_DIR})
        target_link_libraries(engine-gloo PRIVATE ${GLOO_LIBRARY} Threads::Threads)
    endif()
    # No package of Debian's has these; NVIDIA's own are found where they usually are, or by
    # CMAKE_PREFIX_PATH.
    find_path(NCCL_INCLUDE_DIR nccl.h)
    find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2)
    find_path(CUDART_INCLUDE_DIR cuda_runtime_api.h PATHS /usr/local/cuda/include)
    find_library(CUDART_LIBRARY NAMES cudart libcudart.so.12 PATHS /usr/local/cuda/lib64)
    if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY AND CUDART_INCLUDE_DIR AND CUDART_LIBRARY)
        tri_engine_plugin(nccl engine-nccl)
        target_include_directories(engine-nccl SYSTEM PRIVATE ${NCCL_INCLUDE_DIR}
            ${CUDART_INCLUDE_DIR})
        target_link_libraries(engine-nccl PRIVATE ${NCCL_LIBRARY} ${CUDART_LIBRARY})
    endif()
endif()

# Tests run the nccl plug-in over a stand-in for both libraries, with sanitizers too.
set(fake_gpu_folder ${CMAKE_SOURCE_DIR}/tests/testing/fake_gpu)
add_library(fake_gpu SHARED EXCLUDE_FROM_ALL ${fake_gpu_folder}/fake_gpu.c)
target_include_directories(fake_gpu BEFORE PUBLIC ${fake_gpu_folder})
target_include_directories(fake_gpu PRIVATE ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(fake_gpu PRIVATE trireme_flags Threads::Threads)
file(GLOB nccl_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/plugins/engine-nccl/*.c)
add_library(engine-fake-nccl MODULE EXCLUDE_FROM_ALL ${nccl_sources})
set_target_properties(engine-fake-nccl PROPERTIES PREFIX "" OUTPUT_NAME engine-nccl
    C_VISIBILITY_PRESET hidden)
set_target_properties(fake_gpu engine-fake-nccl PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/fake_gpu)
target_include_directories(engine-fake-nccl PRIVATE ${CMAKE_SOURCE_DIR}/include
    ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/plugins)
target_compile_definitions(engine-fake-nccl PRIVATE TRI_NO_SITES TRII_PLUGIN_NAME="nccl")
if(NOT TRI_SANITIZE) # clang links their run time into programs only
    target_link_options(engine-fake-nccl PRIVATE -Wl,-z,defs)
endif()
target_link_libraries(engine-fake-nccl PRIVATE trireme_flags fake_gpu)
# And one of an earlier version of the library.
add_library(engine-fake-old MODULE EXCLUDE_FROM_ALL ${fake_gpu_folder}/old_engine.c)
set_target_properties(engine-fake-old PROPERTIES PREFIX "" OUTPUT_NAME engine-old
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test/fake_gpu)
target_link_libraries(engine-fake-old PRIVATE trireme_flags)

# --- the rendezvous in etcd ---------------------------------------------------
# Tests link its sources themselves, with sanitizers too; trirun loads the module.
pkg_check_modules(CURL QUIET IMPORTED_TARGET libcurl)
if(CURL_FOUND)
    set(etcd_folder ${CMAKE_SOURCE_DIR}/plugins/rendezvous-etcd)
    file(GLOB etcd_sources CONFIGURE_DEPENDS ${etcd_folder}/*.c)
    list(REMOVE_ITEM etcd_sources ${etcd_folder}/etcd_plugin.c)
    list(APPEND etcd_sources ${CMAKE_SOURCE_DIR}/plugins/shared/plugin_socket.c)
    add_library(etcd_testing STATIC ${etcd_sources})
    target_include_directories(etcd_testing PUBLIC ${CMAKE_SOURCE_DIR}/plugins)
    target_link_libraries(etcd_testing PRIVATE trireme_flags
        PUBLIC trireme_testing PkgConfig::CURL PkgConfig::JANSSON)
    if(NOT TRI_SANITIZE)
        tri_plugin(rendezvous-etcd ${etcd_sources} ${etcd_folder}/etcd_plugin.c
            ${CMAKE_SOURCE_DIR}/src/store/wire.c ${CMAKE_SOURCE_DIR}/src/os/clock.c
            ${CMAKE_SOURCE_DIR}/src/os/thread.c)
        target_link_options(rendezvous-etcd PRIVATE
            -Wl,--version-script=${etcd_folder}/rendezvous-etcd.map)
        target_link_libraries(rendezvous-etcd PRIVATE Threads::Threads PkgConfig::CURL
            PkgConfig::JANSSON)
    endif()
endif()

# --- the figures of a job by HTTP ---------------------------------------------
pkg_check_modules(MICROHTTPD QUIET IMPORTED_TARGET libmicrohttpd>=0.9.60)
if(MICROHTTPD_FOUND AND NOT TRI_SANITIZE)
    tri_plugin(metrics-http ${CMAKE_SOURCE_DIR}/plugins/metrics-http/metrics_http.c)
    target_link_libraries(metrics-http PRIVATE PkgConfig::MICROHTTPD)
endif()

# tri_add_plugin_test(SOURCE ENGINE VARIABLE...): its cases for one engine, ENGINE_engine.CASE; the
# variables are set for them.
function(tri_add_plugin_test source engine)
    get_filename_component(name ${source} NAME_WE)
    if(NOT TARGET ${name})
        tri_test_file(${source})
    endif()
    add_dependencies(${name} engine-${engine})
    tri_register_cases(${source} ${engine}_engine "TRI_TEST_ENGINE=${engine};${ARGN}")
endfunction()

# tri_add_plugin_file(NAME VARIABLE...): tests/plugins/NAME.c; the variables are set for its cases.
function(tri_add_plugin_file name)
    set(source ${CMAKE_SOURCE_DIR}/tests/plugins/${name}.c)
    tri_test_file(${source})
    tri_register_cases(${source} ${name} "${ARGN}")
endfunction()

function(tri_add_plugin_tests)
    find_program(TRI_ETCD etcd)
    if(TARGET etcd_testing)
        tri_add_plugin_file(etcd_answers_test)
        tri_add_plugin_file(etcd_causes_test)
        if(TRI_ETCD)
            tri_add_plugin_file(etcd_store_test)
            tri_add_plugin_file(etcd_cluster_test)
            if(TARGET rendezvous-etcd)
                tri_add_plugin_file(etcd_trirun_test)
                tri_add_plugin_file(etcd_hosts_test)
                add_dependencies(etcd_trirun_test rendezvous-etcd trirun)
                add_dependencies(etcd_hosts_test rendezvous-etcd trirun)
            endif()
        else()
            message(STATUS "etcd was not found: its back end is tested without it")
        endif()
    endif()
    tri_add_plugin_file(nccl_order_test LOCAL_RANK=1
        TRI_PLUGIN_PATH=${CMAKE_BINARY_DIR}/test/fake_gpu)
    add_dependencies(nccl_order_test engine-fake-nccl engine-fake-old)
    if(TARGET metrics-http)
        tri_add_plugin_file(metrics_http_test
            TRI_PLUGIN_PATH=${CMAKE_BINARY_DIR}/lib/trireme)
        add_dependencies(metrics_http_test metrics-http trirun)
    endif()
    if(TARGET engine-mpi)
        if(OMPI_FOUND)
            find_program(TRI_MPIRUN NAMES mpirun.openmpi mpirun)
            set(launcher openmpi)
        else()
            find_program(TRI_MPIRUN NAMES mpirun.mpich mpirun)
            set(launcher mpich)
        endif()
        if(TRI_MPIRUN)
            tri_add_plugin_test(${CMAKE_SOURCE_DIR}/tests/plugins/mpi_engine_test.c mpi
                TRI_TEST_MPIRUN=${TRI_MPIRUN} TRI_TEST_LAUNCHER=${launcher})
        endif()
    endif()
    if(TARGET engine-gloo)
        tri_add_plugin_test(${CMAKE_SOURCE_DIR}/tests/plugins/gloo_engine_test.c gloo)
    endif()
    if(TARGET engine-mpich)
        find_program(TRI_MPIRUN_MPICH NAMES mpirun.mpich mpiexec.hydra)
        if(TRI_MPIRUN_MPICH)
            tri_add_plugin_test(${CMAKE_SOURCE_DIR}/tests/plugins/mpi_engine_test.c mpich
                TRI_TEST_MPIRUN=${TRI_MPIRUN_MPICH} TRI_TEST_LAUNCHER=mpich)
        endif()
    endif()
endfunction()
message(STATUS "plug-ins: ${TRI_PLUGINS}")
