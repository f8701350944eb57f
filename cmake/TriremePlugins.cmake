# Engines as plug-ins: built where their library is found, into lib/trireme/engine-NAME.so. They link
# nothing of ours (-z defs would show it), and are told what they may use by a table.

# tri_plugin(NAME FOLDER SOURCE...): FOLDER below src/engines.
function(tri_plugin name folder)
    set(target engine-${name})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/engines/${folder}/*.c
        ${CMAKE_SOURCE_DIR}/src/engines/${folder}/*.cc)
    add_library(${target} MODULE ${sources} ${CMAKE_SOURCE_DIR}/src/group/algorithm/moves.c)
    set_target_properties(${target} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
        CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/trireme)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(${target} PRIVATE TRI_NO_SITES TRII_PLUGIN_NAME="${name}")
    target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,--as-needed)
    target_link_libraries(${target} PRIVATE trireme_flags)
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme)
    set(TRI_PLUGINS ${TRI_PLUGINS} ${name} PARENT_SCOPE)
endfunction()

set(TRI_PLUGINS)
# Their libraries are not made for sanitizers.
if(NOT TRI_SANITIZE)
    # One source for both; where both are installed Open MPI is "mpi" and MPICH "mpich".
    pkg_check_modules(OMPI QUIET ompi-c)
    pkg_check_modules(MPICH QUIET mpich)
    if(OMPI_FOUND)
        tri_plugin(mpi mpi)
        target_include_directories(engine-mpi SYSTEM PRIVATE ${OMPI_INCLUDE_DIRS})
        target_link_options(engine-mpi PRIVATE ${OMPI_LDFLAGS})
        target_link_libraries(engine-mpi PRIVATE ${OMPI_LINK_LIBRARIES})
    endif()
    if(MPICH_FOUND)
        set(mpich_name mpi)
        if(OMPI_FOUND)
            set(mpich_name mpich)
        endif()
        tri_plugin(${mpich_name} mpi)
        target_include_directories(engine-${mpich_name} SYSTEM PRIVATE ${MPICH_INCLUDE_DIRS})
        target_link_libraries(engine-${mpich_name} PRIVATE ${MPICH_LINK_LIBRARIES})
    endif()
endif()
if(NOT TRI_SANITIZE)
    find_path(GLOO_INCLUDE_DIR gloo/rendezvous/context.h)
    find_library(GLOO_LIBRARY gloo)
    if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
        tri_plugin(gloo gloo)
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
        tri_plugin(nccl nccl)
        target_include_directories(engine-nccl SYSTEM PRIVATE ${NCCL_INCLUDE_DIR}
            ${CUDART_INCLUDE_DIR})
        target_link_libraries(engine-nccl PRIVATE ${NCCL_LIBRARY} ${CUDART_LIBRARY})
    endif()
endif()

# --- the rendezvous in etcd ---------------------------------------------------
# Tests link its sources themselves, with sanitizers too; trirun loads the module.
pkg_check_modules(CURL QUIET IMPORTED_TARGET libcurl)
if(CURL_FOUND)
    file(GLOB etcd_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/launch/etcd/*.c)
    set(etcd_entry ${CMAKE_SOURCE_DIR}/src/launch/etcd/etcd_plugin.c)
    list(REMOVE_ITEM etcd_sources ${etcd_entry})
    add_library(etcd_testing STATIC ${etcd_sources})
    target_link_libraries(etcd_testing PRIVATE trireme_flags
        PUBLIC trireme_testing PkgConfig::CURL PkgConfig::JANSSON)
    if(NOT TRI_SANITIZE)
        add_library(rendezvous-etcd MODULE ${etcd_sources} ${etcd_entry}
            ${CMAKE_SOURCE_DIR}/src/store/wire.c ${CMAKE_SOURCE_DIR}/src/os/clock.c
            ${CMAKE_SOURCE_DIR}/src/os/thread.c ${CMAKE_SOURCE_DIR}/src/os/lent_socket.c)
        set_target_properties(rendezvous-etcd PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/trireme)
        target_include_directories(rendezvous-etcd PRIVATE ${CMAKE_SOURCE_DIR}/include
            ${CMAKE_SOURCE_DIR}/src)
        target_compile_definitions(rendezvous-etcd PRIVATE TRI_NO_SITES)
        target_link_options(rendezvous-etcd PRIVATE -Wl,-z,defs -Wl,--as-needed
            -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/rendezvous-etcd.map)
        target_link_libraries(rendezvous-etcd PRIVATE trireme_flags Threads::Threads
            PkgConfig::CURL PkgConfig::JANSSON)
        install(TARGETS rendezvous-etcd LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme)
        set(TRI_PLUGINS ${TRI_PLUGINS} rendezvous-etcd)
    endif()
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

# tri_add_etcd_test(NAME VARIABLE...): tests/plugins/NAME.c.
function(tri_add_etcd_test name)
    set(source ${CMAKE_SOURCE_DIR}/tests/plugins/${name}.c)
    tri_test_file(${source})
    tri_register_cases(${source} ${name} "${ARGN}")
endfunction()

function(tri_add_plugin_tests)
    find_program(TRI_ETCD etcd)
    if(TARGET etcd_testing)
        tri_add_etcd_test(etcd_answers_test)
        tri_add_etcd_test(etcd_causes_test)
        if(TRI_ETCD)
            tri_add_etcd_test(etcd_store_test)
            tri_add_etcd_test(etcd_cluster_test)
            if(TARGET rendezvous-etcd)
                tri_add_etcd_test(etcd_trirun_test)
                tri_add_etcd_test(etcd_hosts_test)
                add_dependencies(etcd_trirun_test rendezvous-etcd trirun)
                add_dependencies(etcd_hosts_test rendezvous-etcd trirun)
            endif()
        else()
            message(STATUS "etcd was not found: its back end is tested without it")
        endif()
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
message(STATUS "engines as plug-ins: ${TRI_PLUGINS}")
