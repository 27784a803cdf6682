# SPDX-License-Identifier: Apache-2.0
# Writes a C++ file that holds text files as string literals: page.html becomes vocabpipe::html::page_html.
#   cmake -D FILES=a.html;b.css -D OUTPUT=parts.cpp -P EmbedText.cmake
set(text "// Made from the files of src/schedule/html.\n#include <string_view>\n\nnamespace vocabpipe::html {\n")
foreach(file IN LISTS FILES)
  get_filename_component(name "${file}" NAME)
  string(MAKE_C_IDENTIFIER "${name}" name)
  file(READ "${file}" content)
  string(APPEND text "extern const std::string_view ${name};\n"
                     "const std::string_view ${name} = R\"embedded(${content})embedded\";\n")
endforeach()
string(APPEND text "}  // namespace vocabpipe::html\n")
file(WRITE "${OUTPUT}" "${text}")
