# SPDX-License-Identifier: Apache-2.0
# Compiles data files into a target: `<name>()` of namespace vocabpipe::embedded returns pairs of
# file name (without extension) and text, in alphabetical order. Whoever calls it declares it.
function(vocabpipe_embed target name)
  set(entries "")
  foreach(file IN LISTS ARGN)
    file(READ ${file} text)
    get_filename_component(stem ${file} NAME_WLE)
    string(APPEND entries "    {\"${stem}\", R\"embedded(${text})embedded\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
"// SPDX-License-Identifier: Apache-2.0
#include \"src/support/embedded_file.hpp\"
#include <span>
namespace vocabpipe::embedded {
std::span<const File> @name@() {
    static constexpr File files[] = {
@entries@};
    return files;
}
}  // namespace vocabpipe::embedded
")
  target_sources(${target} PRIVATE ${source})
endfunction()
