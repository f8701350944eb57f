# `cmake --install`: the libraries, shared and static, headers, programs, pkg-config files, a CMake
# package and manual pages. Nothing installed names an absolute folder, so the tree may be moved.
include(CMakePackageConfigHelpers)

# What a program that links statically needs beside them; the shared ones name it themselves.
set(TRI_COMM_PRIVATE_LIBS dl m)
set(TRI_TRAIN_PRIVATE_LIBS dnnl gomp jansson xxhash jpeg png z)
list(TRANSFORM TRI_COMM_PRIVATE_LIBS PREPEND -l OUTPUT_VARIABLE comm_private)
list(TRANSFORM TRI_TRAIN_PRIVATE_LIBS PREPEND -l OUTPUT_VARIABLE train_private)
list(JOIN comm_private " " TRI_COMM_PRIVATE)
list(JOIN train_private " " TRI_TRAIN_PRIVATE)
string(PREPEND TRI_COMM_PRIVATE "-pthread ")

# A static library hides names too: its objects become one, in which only tri_* and trii_* (for
# libtrireme) stay global.
function(tri_static_library target objects)
    set(whole ${CMAKE_BINARY_DIR}/packaging/${target}.o)
    add_custom_command(OUTPUT ${whole}
        COMMAND ${CMAKE_LINKER} -r -o ${whole} $<TARGET_OBJECTS:${objects}>
        COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=tri_*
                --keep-global-symbol=trii_* ${whole}
        DEPENDS ${objects} $<TARGET_OBJECTS:${objects}> COMMAND_EXPAND_LISTS VERBATIM)
    add_library(${target} STATIC ${whole})
    set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
endfunction()
tri_static_library(trireme-comm-static comm_objects)
tri_static_library(trireme-static train_objects)
tri_static_library(trireme-models-static models_objects)
set_target_properties(trireme-comm-static PROPERTIES OUTPUT_NAME trireme-comm
    EXPORT_NAME comm_static LINKER_LANGUAGE C)
set_target_properties(trireme-static PROPERTIES OUTPUT_NAME trireme
    EXPORT_NAME trireme_static LINKER_LANGUAGE C)
set_target_properties(trireme-models-static PROPERTIES OUTPUT_NAME trireme-models
    EXPORT_NAME models_static LINKER_LANGUAGE C)
target_link_libraries(trireme-comm-static INTERFACE Threads::Threads ${TRI_COMM_PRIVATE_LIBS})
target_link_libraries(trireme-static INTERFACE trireme-comm-static ${TRI_TRAIN_PRIVATE_LIBS})
target_link_libraries(trireme-models-static INTERFACE trireme-static m)

set_target_properties(trireme-comm PROPERTIES EXPORT_NAME comm)
set_target_properties(trireme-models PROPERTIES EXPORT_NAME models)
# libtrireme finds libtrireme-comm beside itself, and libtrireme-models both.
# Also in the build tree, whose folders are the same: a path that CMake rewrites at installation ends
# with an empty entry, and the loader then looks for every library in the current folder first.
set_target_properties(trireme trireme-models PROPERTIES INSTALL_RPATH "$ORIGIN"
    BUILD_WITH_INSTALL_RPATH ON)

set(installed_libraries trireme-comm trireme trireme-models
    trireme-comm-static trireme-static trireme-models-static)
install(TARGETS ${installed_libraries} EXPORT triremeTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS trirun trireme_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES $<TARGET_FILE_DIR:trirun>/trirun-launch DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")

install(FILES ${CMAKE_SOURCE_DIR}/packaging/gdb/trireme.py
    DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme/gdb)

# Guides, beside the examples that they point to.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
    PATTERN man EXCLUDE PATTERN STYLE.md EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/models DESTINATION ${CMAKE_INSTALL_DOCDIR}/src)
install(CODE "set(TRI_DOCS \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR})
    set(TRI_INCLUDE \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR})
    include(${CMAKE_SOURCE_DIR}/packaging/doc_links.cmake)")

# --- for builds of others ---------------------------------------------------
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(EXPORT triremeTargets NAMESPACE trireme:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_SOURCE_DIR}/packaging/triremeConfig.cmake.in
    ${CMAKE_BINARY_DIR}/packaging/triremeConfig.cmake INSTALL_DESTINATION ${package_folder})
# Before version 1 a change of the minor number may break programs.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/packaging/triremeConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/packaging/triremeConfig.cmake
    ${CMAKE_BINARY_DIR}/packaging/triremeConfigVersion.cmake DESTINATION ${package_folder})

file(RELATIVE_PATH TRI_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" TRI_PC_TO_PREFIX ${TRI_PC_TO_PREFIX})
foreach(module trireme-comm trireme trireme-models)
    configure_file(${CMAKE_SOURCE_DIR}/packaging/${module}.pc.in
        ${CMAKE_BINARY_DIR}/packaging/${module}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/packaging/${module}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# --- manual pages -----------------------------------------------------------
# Made from the public headers (section 3), docs/man/*.md and what the programs' --help says.
file(GLOB man_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/trireme/*.h
    ${CMAKE_SOURCE_DIR}/docs/man/*.md ${CMAKE_SOURCE_DIR}/packaging/man*)
set(man_stamp ${CMAKE_BINARY_DIR}/man/stamp)
add_custom_command(OUTPUT ${man_stamp}
    COMMAND ${CMAKE_SOURCE_DIR}/packaging/man.sh ${CMAKE_BINARY_DIR}/man ${PROJECT_VERSION}
            ${CMAKE_BINARY_DIR}/bin
    COMMAND ${CMAKE_COMMAND} -E touch ${man_stamp}
    DEPENDS ${man_sources} ${CMAKE_SOURCE_DIR}/docs/USING.md trirun trireme_tool
    COMMENT "Writing manual pages" VERBATIM)
add_custom_target(man ALL DEPENDS ${man_stamp})
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/man1 ${CMAKE_BINARY_DIR}/man/man3
    ${CMAKE_BINARY_DIR}/man/man7 DESTINATION ${CMAKE_INSTALL_MANDIR})

# Everything that `cmake --install` puts somewhere: what has to be built before.
add_custom_target(installed DEPENDS ${installed_libraries} trirun trireme_tool man ${TRI_PLUGINS})
