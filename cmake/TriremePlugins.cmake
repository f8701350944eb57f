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

# tri_add_plugin_test(SOURCE ENGINE VARIABLE...): its cases for one engine, ENGINE_engine.CASE; the
# variables are set for them.
function(tri_add_plugin_test source engine)
    get_filename_component(name ${source} NAME_WE)
    if(NOT TARGET ${name})
        tri_test_program(${source})
    endif()
    add_dependencies(${name} engine-${engine})
    tri_register_cases(${source} ${engine}_engine "TRI_TEST_ENGINE=${engine};${ARGN}")
endfunction()

function(tri_add_plugin_tests)
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
    if(TARGET engine-mpich)
        find_program(TRI_MPIRUN_MPICH NAMES mpirun.mpich mpiexec.hydra)
        if(TRI_MPIRUN_MPICH)
            tri_add_plugin_test(${CMAKE_SOURCE_DIR}/tests/plugins/mpi_engine_test.c mpich
                TRI_TEST_MPIRUN=${TRI_MPIRUN_MPICH} TRI_TEST_LAUNCHER=mpich)
        endif()
    endif()
endfunction()
message(STATUS "engines as plug-ins: ${TRI_PLUGINS}")
