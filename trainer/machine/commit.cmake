# Writes FILE, which defines the functions of trainer/machine/version.h, for the sources in SOURCE, unless it would not
# change. BUILT_FOR is what built_for() returns.
cmake_policy(VERSION 3.25)
find_program(GIT git)
set(commit unknown)
function(git result output)
  execute_process(COMMAND ${GIT} -C ${SOURCE} ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${result} ${status} PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()
if(GIT)
  # Ignore the commit of another project's tree around the sources.
  git(failed top rev-parse --show-toplevel)
  get_filename_component(here ${SOURCE} REALPATH)
  if(NOT failed AND top STREQUAL here)
    git(failed commit rev-parse --short=12 HEAD)
    git(changed ignored diff --quiet HEAD)
    if(failed)
      set(commit unknown)
    elseif(changed)
      string(APPEND commit ", with changes")
    endif()
  endif()
endif()
set(text "// Made by trainer/machine/commit.cmake.
#include \"trainer/machine/version.h\"

namespace megalith {

const char* version() { return \"megalith ${VERSION}, commit ${commit}\"; }

const char* built_for() { return \"${BUILT_FOR}\"; }

}  // namespace megalith
")
set(old)
if(EXISTS ${FILE})
  file(READ ${FILE} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${FILE} "${text}")
endif()
