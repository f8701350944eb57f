# Compiler flags of every target, and the switches of the presets.
option(TRI_WERROR "Warnings are errors" OFF)
set(TRI_SANITIZE "" CACHE STRING "-fsanitize= list, e.g. address,undefined")

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Dev keeps assertions; Release drops them.
set(CMAKE_C_FLAGS_DEV "-O1 -g")
set(CMAKE_CXX_FLAGS_DEV "-O1 -g")
if(TRI_SANITIZE OR CMAKE_C_COMPILER_ID MATCHES Clang)
    # Functions and lines are what a report names; variables take a quarter of the compiler's time.
    set(CMAKE_C_FLAGS_DEV "-O1 -g1")
    set(CMAKE_CXX_FLAGS_DEV "-O1 -g1")
endif()
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)

if(CCACHE_PROGRAM AND NOT EXISTS "${CCACHE_PROGRAM}")
    unset(CCACHE_PROGRAM CACHE) # it was removed
endif()
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(trireme_flags INTERFACE)
target_compile_options(trireme_flags INTERFACE
    # Replicated state must have the same bits in every build: no contraction
    # into FMA unless a kernel asks for one by name.
    -ffp-contract=off -fno-semantic-interposition
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> -Wvla -Wcast-qual -Wwrite-strings
    -Wformat=2 -Wundef -Wpointer-arith)
if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    # Messages are cut at the end of their buffer on purpose.
    target_compile_options(trireme_flags INTERFACE -Wno-format-truncation)
endif()
target_compile_definitions(trireme_flags INTERFACE _GNU_SOURCE)
if(TRI_WERROR)
    target_compile_options(trireme_flags INTERFACE -Werror)
endif()
if(TRI_SANITIZE)
    target_compile_options(trireme_flags INTERFACE
        -fsanitize=${TRI_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(trireme_flags INTERFACE -fsanitize=${TRI_SANITIZE})
    if(TRI_SANITIZE MATCHES thread AND CMAKE_C_COMPILER_ID MATCHES Clang)
        # Loops that are vectorized elsewhere are not where each access is watched.
        target_compile_options(trireme_flags INTERFACE -Wno-pass-failed)
    elseif(TRI_SANITIZE MATCHES thread)
        target_compile_options(trireme_flags INTERFACE -Wno-tsan)
    endif()
endif()
