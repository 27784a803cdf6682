// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/text_input.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

TEST(TextInput, IsNamedInMessages) {
    EXPECT_EQ(about_inputs({{.path = "a"}}), "a");
    EXPECT_EQ(about_inputs({{.path = "a"}, {.path = "b"}}), "a and the other inputs");
    EXPECT_EQ(about_line({.path = "a"}, 7, "is no JSON"), "a line 7: is no JSON");
    EXPECT_EQ(about_line({.path = "a", .parquet = true}, 7, "is null"), "a row 7: is null");
}

TEST(TextInput, IsOfTheKindOfItsFirstLineThatIsNotBlank) {
    const TempFolder folder;
    const auto kind = [&](const std::string& text) {
        write_file(folder / "x", text);
        return text_kind(folder / "x");
    };
    for (const char* plain : {"", "\n \n", "text\n{}", "{no json}", "{\"a\": 1} x", "[1]", "17"}) {
        EXPECT_EQ(kind(plain), TextKind::plain) << plain;
    }
    for (const char* lines :
         {"{}", "{\"a\": \"x\"}\nno json", "\n \t\r\n{\"a\": 1}\n", "\xef\xbb\xbf{\"a\": 1}"}) {
        EXPECT_EQ(kind(lines), TextKind::json_lines) << lines;
    }
    EXPECT_EQ(kind("\n{\"text\": \"x\", \"learn\": []}\n{}"), TextKind::chats);
    EXPECT_EQ(message_of<InputFileError>([&] { (void)kind("\n[{\"a\": 1}]"); }),
              (folder / "x") +
                  ": is a JSON array; write one object per line (jq -c '.[]'), or use "
                  "--input-format text to take it as text");
}

/// The documents of a file, each in brackets, and the lines that have none.
std::string read(const TextInput& input) {
    std::string all = "[";
    read_text(input, {.text = [&](std::string_view block) { all += block; },
                      .end = [&] { all += "]["; },
                      .bad_line =
                          [&](int64_t line, const std::string& reason) {
                              all += std::to_string(line) + ":" + reason.substr(0, 14) + " ";
                          }});
    return all;
}

TEST(TextInput, GivesADocumentForEachLineOfJson) {
    const TempFolder folder;
    write_file(folder / "x",
               "{\"t\": \"a\\nb\"}\n\n \t\n{\"t\": 1}\n{\"t\": \"\"}\nx\n{\"t\": \"c\"}");
    EXPECT_EQ(read({.path = folder / "x", .json_key = "t"}),
              "[a\nb][4:\"t\" is no stri ][6:is no JSON: co c][");
    write_file(folder / "y", "a\n\nb\n");
    EXPECT_EQ(read({.path = folder / "y"}), "[a\n\nb\n][");
    EXPECT_EQ(message_of<InputFileError>([&] {
                  read_text({.path = folder / "x", .json_key = "t"},
                            {.text = [](std::string_view) {}, .end = [] {}});
              }),
              (folder / "x") + " line 4: \"t\" is no string but number; no key has a string");
}

}  // namespace
}  // namespace vocabpipe::testing
